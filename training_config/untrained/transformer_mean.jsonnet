// I have: a transformer, and nothing to train on
// I want: its embeddings as it is, the mean of token vectors
// Nothing is trained, nothing is read:
//   allennlp train training_config/untrained/transformer_mean.jsonnet -s output
(import "../base.libsonnet") + (import "../unused.libsonnet")(["num_epochs", "learning_rate", "optimizer"]) {
    masked_language_modeling:: false,
    // No spans are drawn, so the transformer alone says how long a text may be.
    num_anchors:: null,
    num_positives:: null,
    max_span_len:: null,
    min_span_len:: null,
    train_data_path: "",  // never read
    trainer: { type: "no_op" },
}
