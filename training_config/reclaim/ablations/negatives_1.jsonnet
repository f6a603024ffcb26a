// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with the hardest negative alone, K = 1
(import "../reclaim.libsonnet") { num_negatives:: 1 }
