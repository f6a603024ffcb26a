// The classifier without RECLAIM, to compare with: it begins with the same weights.
(import "reclaim.libsonnet") {
    dataset_reader+: { with_ids: false },
    model: self.task_model,
}
