// I have: captions, and features of their images
// I want: captions and images that find each other, with RECLAIM (VSE++)
// RECLAIM beside VSE++ (Faghri et al., 2018): captions by a GRU, images by features computed before.
// train_data_path is {"captions": ..., "images": ...}, or the captions alone if their features lie
// beside them (train.jsonl, train.npy). model.objective.instances is the number of rows of captions.
local base = import "words.libsonnet";

base {
    image_width:: 2048,  // of the features
    word_size:: 300,
    common_size:: 1024,
    instances:: 145000,  // Flickr30k; 113,287 images of COCO have 566,435
    weight:: 0.1,  // lambda
    batch_size:: 128,
    num_epochs:: 30,
    learning_rate:: 2e-4,
    local settings = self,

    vocabulary: { type: "from_instances", min_count: { tokens: 4 } },
    dataset_reader: {
        type: "image_text",
        token_indexers: { tokens: { type: "single_id", lowercase_tokens: true } },
        with_ids: true,
    },
    model: {
        type: "reclaim",
        weight: settings.weight,
        u: "_seq2vec_encoder",
        v: "image_features",
        same: "image_ids",  // captions of an image have the same v
        objective: { type: "reclaim", instances: settings.instances, num_negatives: 100 },
        model: {
            type: "image_text",
            text_field_embedder: {
                token_embedders: {
                    tokens: { type: "embedding", embedding_dim: settings.word_size },
                },
            },
            seq2vec_encoder: {
                type: "gru",
                input_size: settings.word_size,
                hidden_size: settings.common_size,
            },
            image_width: settings.image_width,
            margin: 0.2,
            negatives: "hardest",
        },
    },
    data_loader: { batch_size: settings.batch_size, shuffle: true, drop_last: true },
    validation_data_loader: self.data_loader { shuffle: false, drop_last: false },
    trainer+: {
        optimizer: { type: "adam", lr: settings.learning_rate },
        grad_norm: 2.0,
        learning_rate_scheduler: { type: "step", step_size: 15, gamma: 0.1 },
        validation_metric: "+rsum",
    },
}
