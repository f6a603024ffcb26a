// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with K = 300
(import "../reclaim.libsonnet") { num_negatives:: 300 }
