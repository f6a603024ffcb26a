// K = 1: the hardest negative alone.
(import "../reclaim.libsonnet") { num_negatives:: 1 }
