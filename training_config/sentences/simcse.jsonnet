// I have: sentences, one a line
// I want: an encoder by two dropout passes of each sentence (SimCSE): begin with this one
// Unsupervised SimCSE (Gao et al., 2021) for BERT-base: two dropout passes, the other sentences of
// the batch are the negatives, one direction. docs/SETTINGS.md has each setting beside the paper's.
// Optimizer: SimCSE's public code, run_unsup_example.sh: the defaults of the Trainer.
(import "sentences.libsonnet") {
    default_transformer:: "bert-base-uncased",
    local settings = self,

    model+: {
        head: { type: "tanh" },  // in training only
        initializer: settings.initialized_as_bert,
        loss: { type: "info_nce", similarity: "cosine", temperature: settings.temperature },
    },
}
