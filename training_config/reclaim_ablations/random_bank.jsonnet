// Negatives come from a random 80 % of the banks, drawn anew in every step.
(import "../reclaim.libsonnet") { model+: { objective+: { candidate_share: 0.8 } } }
