// I have: a transformer, and nothing to train on
// I want: its embeddings as it is, the vector of the first token
// Nothing is trained, nothing is read:
//   allennlp train training_config/untrained/transformer_cls.jsonnet -s output
(import "transformer_mean.jsonnet") {
    model+: { seq2vec_encoder: { type: "cls_pooler" } },
}
