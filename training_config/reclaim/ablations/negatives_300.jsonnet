// K = 300.
(import "../reclaim.libsonnet") { num_negatives:: 300 }
