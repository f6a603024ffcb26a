// A sentence and the next one of its document as a pair, contrasted in both directions.
// Blank rows lie between documents, as `declutr split-sentences` writes them.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") {
    views:: "spans",  // what the reader brings
    dataset_reader+: { positives: "next" },
    model+: {
        loss: { type: "info_nce", similarity: "cosine", temperature: 0.05, symmetric: true },
    },
}
