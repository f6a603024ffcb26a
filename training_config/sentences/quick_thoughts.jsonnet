// I have: sentences in their order, one a line, blank lines between documents
// I want: sentences that find their neighbours (Quick-Thoughts)
// Quick-Thoughts (Logeswaran & Lee, 2018): two encoders; one's embedding of a sentence is to find
// the other's of its neighbours among 400 that follow each other. An embedding is both, joined.
// `declutr split-sentences` writes such a file.
// Optimizer: Quick-Thoughts' public code, src/train.py (where each tensor's gradient is clipped).
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    batch_size:: 400,
    learning_rate:: 3e-5,  // the paper's 5e-4 is for encoders that begin from random weights
    optimizer:: (import "../optimizers.libsonnet").quick_thoughts,
    dataset_reader+: { with_ids: true },
    data_loader+: { consecutive: true },
    model+: {
        two_encoders: true,
        loss: { type: "quick_thoughts", context: 1 },
    },
    trainer+: { grad_norm: 5.0 },
}
