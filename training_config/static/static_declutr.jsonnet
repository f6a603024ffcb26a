// I have: documents of at least 512 tokens, one a line, and no GPU
// I want: an encoder without a transformer, in minutes (static DeCLUTR)
// DeCLUTR over the mean of token vectors: two anchors of 32 to 128 tokens a document, two positives
// each, temperature 0.2, 32 documents a step. TRANSFORMER_MODEL is a folder of
// `declutr static-vectors`.
(import "../base.libsonnet") + (import "static.libsonnet") {
    max_span_len:: 128,
    batch_size:: 32,
    num_epochs:: 10,
    temperature:: 0.2,

    dataset_reader+: { short_documents: "skip" },
}
