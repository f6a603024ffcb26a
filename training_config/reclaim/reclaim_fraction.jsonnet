// I have: rows of a task of GLUE, with their classes
// I want: a classifier with RECLAIM, and few labels: 10 % of them
// The paper takes 10 negatives for small data.
(import "reclaim.libsonnet") {
    label_fraction:: 0.1,
    num_negatives:: 10,
}
