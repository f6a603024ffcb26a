// I have: sentences in their order, one a line, blank lines between documents
// I want: a sentence and the next one as a pair
// Contrasted in both directions. `declutr split-sentences` writes such a file.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") {
    views:: "spans",  // what the reader brings
    local settings = self,

    dataset_reader+: { positives: "next" },
    model+: {
        loss: {
            type: "info_nce",
            similarity: "cosine",
            temperature: settings.temperature,
            symmetric: true,
        },
    },
}
