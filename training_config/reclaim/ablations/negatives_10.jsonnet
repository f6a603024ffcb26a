// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with K = 10
(import "../reclaim.libsonnet") { num_negatives:: 10 }
