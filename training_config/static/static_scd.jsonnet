// I have: sentences, one a line, and no GPU
// I want: an encoder without a transformer and without negatives (static SCD)
// SCD over the mean of token vectors: the same sentences with few and with many tokens left out;
// their embeddings are pushed apart, their projections decorrelated. TRANSFORMER_MODEL is a folder
// of `declutr static-vectors`.
// Optimizer: no public code; see optimizers.libsonnet.
local smaller = { model+: { head+: { hidden_dims: [512, 512, 512] }, loss+: { contrast_weight: 0.3 } } };

(import "../sentences/scd.jsonnet") + smaller + (import "static.libsonnet") {
    learning_rate:: 3e-3,
    max_length:: 128,
    views:: { type: "dropout_rates", low: 0.2, high: 0.6 },  // of tokens
}
