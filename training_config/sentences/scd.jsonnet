// I have: sentences, one a line
// I want: no negatives: two rates of dropout, decorrelated (SCD, for BERT)
// SCD (Klein & Nabi, 2022) as in the paper, for BERT: the same sentences under a low and a high rate
// of dropout; their embeddings are pushed apart, their projections decorrelated.
// Optimizer: SCD's public code, the command of its README: the defaults of the Trainer.
(import "sentences.libsonnet") {
    default_transformer:: "bert-base-uncased",
    batch_size:: 192,
    temperature:: null,  // that of the loss, 0.05
    views:: { type: "dropout_rates", low: 0.05, high: 0.15 },
    local settings = self,

    model+: {
        head: { type: "projector", hidden_dims: [4096, 4096, 4096] },
        initializer: settings.initialized_as_bert,
        loss: {
            type: "scd",
            decorrelation_weight: 0.005,
            redundancy_weight: 0.013,
            [if settings.temperature != null then "temperature"]: settings.temperature,
        },
    },
}
