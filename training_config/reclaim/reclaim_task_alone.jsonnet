// I have: rows of a task of GLUE, with their classes
// I want: the classifier without RECLAIM, to compare with
// It begins with the same weights.
(import "reclaim.libsonnet") {
    dataset_reader+: { with_ids: false },
    model: self.task_model,
}
