// What `make train` runs: short spans and a small batch of documents, for a small transformer that
// has never been trained, on two CPU cores in a few minutes. For anything real, see declutr.jsonnet.
(import "base.libsonnet") {
    num_anchors:: 1,
    max_span_len:: 64,
    min_span_len:: 16,
    batch_size:: 32,
    num_epochs:: 6,
    learning_rate:: 1e-3,  // weights are random: there is nothing to spoil

    dataset_reader+: { short_documents: "skip" },
    trainer+: { checkpointer: { type: "atomic", keep_most_recent_by_count: 1 } },
}
