// What the recipes of SCAN share: stacked cross attention between the regions of images and the words
// of captions (Lee et al., 2018), with and without RECLAIM. docs/RECLAIM.md explains it.
//
//   -o '{"train_data_path": "f30k_precomp/train_caps.txt",
//        "validation_data_path": "f30k_precomp/dev_caps.txt"}'
//
// Files are those of SCAN's authors (train_caps.txt, and train_ims.npy beside it), schedules those of
// the paper's appendix C, the other settings those of SCAN's README and code.

local published = {
    flickr30k: { rows: 145000, epochs: 30, decay_after: 15, learning_rate: 2e-4, lse: { t2i: 6, i2t: 5 } },
    coco: { rows: 566435, epochs: 20, decay_after: 10, learning_rate: 5e-4, lse: { t2i: 6, i2t: 20 } },
};

(import "words.libsonnet") {
    data:: "flickr30k",  // or coco
    cross_attn:: "i2t",  // t2i, i2t or both
    agg_func:: "LogSumExp",  // or Mean
    image_width:: 2048,  // of a region
    word_size:: 300,
    common_size:: 1024,
    instances:: published[self.data].rows,  // lines of train_caps.txt
    num_negatives:: 100,  // K
    batch_size:: 128,
    num_epochs:: published[self.data].epochs,
    learning_rate:: published[self.data].learning_rate,
    decay_after:: published[self.data].decay_after,
    // NLTK's words, which SCAN's code takes, are those of { type: "nltk_words" }.
    tokenizer:: { type: "letters_digits" },
    local settings = self,

    vocabulary: { type: "from_instances", min_count: { tokens: 4 } },
    dataset_reader: {
        type: "image_text",
        captions_per_image: 5,
        start_end: true,
        tokenizer: settings.tokenizer,
        token_indexers: { tokens: { type: "single_id", lowercase_tokens: true } },
        with_ids: false,
    },
    local directions = if self.cross_attn == "both" then ["t2i", "i2t"] else [self.cross_attn],
    task_model:: {
        type: "scan",
        text_field_embedder: {
            token_embedders: {
                tokens: { type: "embedding", embedding_dim: settings.word_size },
            },
        },
        seq2seq_encoder: {
            type: "gru",
            bidirectional: true,
            input_size: settings.word_size,
            hidden_size: settings.common_size,
        },
        image_width: settings.image_width,
        attention: [
            {
                cross_attn: direction,
                raw_feature_norm: "clipped_l2norm",
                agg_func: settings.agg_func,
                lambda_softmax: { t2i: 9, i2t: 4 }[direction],
                lambda_lse: published[settings.data].lse[direction],
            }
            for direction in directions
        ],
        margin: 0.2,
        negatives: "hardest",
        fold_size: 1000,  // recall among 1,000 images too, where there are more (COCO's 1k and 5k)
        initializer: {
            regexes: [["_text_field_embedder.*weight", { type: "uniform", a: -0.1, b: 0.1 }]],
        },
    },
    model: self.task_model,

    data_loader: { batch_size: settings.batch_size, shuffle: true, drop_last: true },
    validation_data_loader: self.data_loader { shuffle: false, drop_last: false },
    trainer+: {
        optimizer: { type: "adam", lr: settings.learning_rate },
        grad_norm: 2.0,
        learning_rate_scheduler: { type: "step", step_size: settings.decay_after, gamma: 0.1 },
        validation_metric: "+rsum",
    },

    // `model` of the recipes with RECLAIM: u is the mean of a caption's words, v that of an image's
    // regions, and captions of an image are no negatives of each other.
    with_reclaim:: {
        type: "reclaim",
        u: "caption_vectors",
        v: "image_vectors",
        same: "image_ids",
        model: settings.task_model,
        objective: {
            type: "reclaim",
            instances: settings.instances,
            num_negatives: settings.num_negatives,
            // Two vectors of 1,024 numbers for each of 566,435 captions take 2.3 GB then, not 4.6.
            precision: if settings.data == "coco" then "float16" else "float32",
        },
    },
    // The same in place of the triplet loss, with weight 1.
    only_reclaim:: self.with_reclaim {
        weight: 1.0,
        task_weight: 0.0,
        model+: { negatives: null },  // the triplet loss is not computed
    },
}
