// The same classifier, with the transformer trained further.
//   ARCHIVE=output TRAIN=train.tsv VALIDATION=validation.tsv \
//       allennlp train training_config/fine_tuned.jsonnet -s topics
(import "frozen.jsonnet") {
    model+: {
        text_field_embedder+: { token_embedders+: { tokens+: { train_parameters: true } } },
        dropout: 0.1,
    },
    trainer+: {
        num_epochs: 3,
        patience: null,
        grad_norm: 1.0,
        optimizer: {
            type: "huggingface_adamw",
            lr: 1e-3,  // of the new layer
            weight_decay: 0.01,
            parameter_groups: [[["_text_field_embedder"], { lr: 2e-5 }]],
        },
        learning_rate_scheduler: { type: "slanted_triangular", cut_frac: 0.1 },
    },
}
