// I have: a transformer, and nothing to train on
// I want: its embeddings as it is, the mean of token vectors
// Nothing is trained, nothing is read:
//   allennlp train training_config/untrained/transformer_mean.jsonnet -s output
(import "../base.libsonnet") {
    masked_language_modeling:: false,
    train_data_path: "",  // never read
    trainer: { type: "no_op" },
}
