// K = 10.
(import "../reclaim.libsonnet") { num_negatives:: 10 }
