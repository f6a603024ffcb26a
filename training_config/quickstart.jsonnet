// I have: documents of a few dozen words, and two CPU cores
// I want: to see all of it work in minutes
// What `make train` runs: short spans, for a small transformer that has never been trained. For
// anything real, see declutr.jsonnet.
(import "base.libsonnet") {
    num_anchors:: 1,
    num_positives:: 1,
    max_span_len:: 64,
    min_span_len:: 16,
    batch_size:: 64,
    num_epochs:: 12,
    learning_rate:: 1e-3,  // the weights are random: there is nothing to spoil

    dataset_reader+: {
        short_documents: "skip",
        // Positives that overlap their anchor are found by the tokens they share, even with random
        // weights. In the few minutes this takes, touching ones teach more.
        sampling_strategy: "adjacent",
    },
    trainer+: { checkpointer: { type: "atomic", keep_most_recent_by_count: 1 } },
}
