// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM with negatives of the batch, banks kept but not searched
(import "../reclaim.libsonnet") { model+: { objective+: { candidates: "batch" } } }
