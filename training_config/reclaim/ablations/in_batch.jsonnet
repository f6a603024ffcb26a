// Negatives are the other instances of the batch: banks are kept, but not searched.
(import "../reclaim.libsonnet") { model+: { objective+: { candidates: "batch" } } }
