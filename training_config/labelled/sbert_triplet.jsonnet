// I have: triplets: anchor, positive, negative
// I want: an encoder by these triplets (Sentence-BERT)
// Sentence-BERT on triplets: an anchor is to be nearer to its positive than to its negative, by a
// margin of 1 (Euclidean). A table with anchor, positive and negative.
// Optimizer: Sentence-BERT's public code, `fit`: see optimizers.libsonnet.
(import "sbert.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    dataset_reader+: { negative: "negative" },
    model+: { loss: { type: "triplet", margin: 1.0 } },
}
