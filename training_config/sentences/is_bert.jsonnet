// I have: sentences, one a line
// I want: sentences that find their own n-grams (IS-BERT)
// IS-BERT (Zhang et al., 2020): a sentence, the mean of convolutions over its tokens, is to tell
// its own n-grams from those of other sentences. With ReLU after the convolutions, as the paper prints
// them; its public code has none ("relu": false of the pooler).
// Optimizer: IS-BERT's public code, `fit` as its examples call it, and so the rate.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    batch_size:: 32,
    learning_rate:: 2e-6,
    optimizer:: (import "../optimizers.libsonnet").is_bert,
    views:: null,  // there is one
    pooler:: { type: "ngram_convolutions", channels: 256, kernels: [1, 3, 5] },
    model+: { loss: { type: "is_bert" } },
}
