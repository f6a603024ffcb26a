// I have: pairs with scores of similarity
// I want: cosines that are these scores (Sentence-BERT)
// Sentence-BERT on semantic textual similarity: the cosine of a pair is to be its score. A table with
// anchor, positive and label, the scores of 0 to 5.
// Optimizer: Sentence-BERT's public code, `fit`: see optimizers.libsonnet.
(import "sbert.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    num_epochs:: 4,  // of the public code for STS-B, which is small

    dataset_reader+: { labels: "score", max_score: 5 },
    model+: { loss: { type: "cosine_regression" } },
}
