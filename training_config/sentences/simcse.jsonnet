// I have: sentences, one a line
// I want: an encoder by two dropout passes of each sentence (SimCSE): begin with this one
// Unsupervised SimCSE (Gao et al., 2021): two dropout passes, the other sentences of the batch are
// the negatives, one direction. For RoBERTa-base the paper has batch_size 512, learning_rate 1e-5.
// Optimizer: SimCSE's public code, run_unsup_example.sh: the defaults of the Trainer.
(import "sentences.libsonnet") {
    model+: {
        head: { type: "tanh" },  // in training only
        loss: { type: "info_nce", similarity: "cosine", temperature: 0.05 },
    },
}
