// The same with 10 % of the labels; the paper takes 10 negatives for small data.
(import "reclaim.libsonnet") {
    label_fraction:: 0.1,
    num_negatives:: 10,
}
