// I have: sentences, one a line
// I want: Contrastive Tension with the other sentences of the batch as negatives
// The variant of sentence-transformers: InfoNCE in both directions between two encoders, at a learnt
// temperature that begins at 1/20 (here it stays above 1/100, as CLIP's). Which of the two embeds makes
// no difference but chance; there it is the second.
// Optimizer: the public code, train_ct-improved_from_file.py of sentence-transformers 2.0, and so are
// batch, length and rate. Decay falls on the temperature's logarithm, too.
(import "info_nce.jsonnet") {
    batch_size:: 128,
    learning_rate:: 5e-5,
    max_length:: 75,
    optimizer:: (import "../optimizers.libsonnet").sentence_bert { optimizer+: { correct_bias: true } },
    pooler:: null,  // the mean
    temperature:: 0.05,
    model+: { two_encoders: true, embed_with_first: true, loss+: { learn_temperature: true } },
}
