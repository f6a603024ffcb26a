// What recipes over single sentences share: train_data_path holds one a line. Documents become such
// a file by `declutr split-sentences`.
local of_spans = ["num_anchors", "num_positives", "max_span_len", "min_span_len"];

(import "../base.libsonnet") + (import "../unused.libsonnet")(of_spans) {
    batch_size:: 64,
    learning_rate:: 3e-5,
    // Unless a recipe says otherwise: of SimCSE's public code, and where there is none for texts.
    optimizer:: (import "../optimizers.libsonnet").trainer,
    max_length:: 32,  // tokens in training, special ones included; embeddings are of whole texts
    masked_language_modeling:: false,
    views:: "dropout",
    pooler:: { type: "cls_pooler" },  // the first token, without the tanh layer of BERT
    // Heads begin as BERT's own layers do, as those of SimCSE and SCD: `initializer` of the model.
    initialized_as_bert:: {
        regexes: [
            ["^_head\\.(linear|layers\\.[036])\\.weight$", { type: "normal", std: 0.02 }],
            ["^_head\\..*bias$", "zero"],
        ],
    },
    local settings = self,
    local of_spans = super.dataset_reader,

    dataset_reader: {
        type: "sentences",
        seed: settings.seed,
        tokenizer: of_spans.tokenizer,
        token_indexers: of_spans.token_indexers,
        max_length: settings.max_length,
    },
    model+: {
        seq2vec_encoder: settings.pooler,
        views: settings.views,
    },
}
