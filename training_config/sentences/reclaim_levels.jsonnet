// I have: sentences, one a line
// I want: RECLAIM between sentences and their words
// RECLAIM as the objective of a sentence encoder, with the paper's two levels: u is the embedding of a
// sentence, v the mean of its word embeddings. Negatives are the hardest of all sentences.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "reclaim_views.jsonnet") {
    model+: { views: "levels" },
}
