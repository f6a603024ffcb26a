// Embeds with a transformer as it is, by the vector of its first token: nothing is trained.
//   allennlp train training_config/untrained/transformer_cls.jsonnet -s output
(import "transformer_mean.jsonnet") {
    model+: { seq2vec_encoder: { type: "cls_pooler" } },
}
