// AllenNLP's own classifier on frozen sentence embeddings: only a linear layer is trained.
//   ARCHIVE=output TRAIN=train.tsv VALIDATION=validation.tsv \
//       allennlp train training_config/frozen.jsonnet -s topics

local trained = { type: "declutr", archive: std.extVar("ARCHIVE") };

{
    dataset_reader: {
        type: "label_and_text",
        tokenizer: trained,
        token_indexers: { tokens: trained },
    },
    train_data_path: std.extVar("TRAIN"),
    validation_data_path: std.extVar("VALIDATION"),
    model: {
        type: "basic_classifier",
        text_field_embedder: { token_embedders: { tokens: trained } },
        seq2vec_encoder: trained,
        namespace: "tags",  // where the indexer writes its word pieces, for `predict` to show
    },
    data_loader: { batch_size: 32, shuffle: true },
    validation_data_loader: { batch_size: 64 },
    trainer: {
        num_epochs: 20,
        patience: 5,
        validation_metric: "+accuracy",
        optimizer: { type: "adam", lr: 1e-2 },
    },
}
