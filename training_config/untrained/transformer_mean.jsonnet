// Embeds with a transformer as it is, by the mean of its token vectors: nothing is trained.
//   allennlp train training_config/untrained/transformer_mean.jsonnet -s output
(import "../base.libsonnet") {
    masked_language_modeling:: false,
    train_data_path: "",  // never read
    trainer: { type: "no_op" },
}
