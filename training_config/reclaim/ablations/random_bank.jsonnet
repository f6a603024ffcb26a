// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM without selection of negatives or spectral normalisation
// Negatives are all of a random 80 % of the banks, drawn anew in every step (table 5, "80% w/o ANS",
// which is table 8's "BERT-CL").
(import "../reclaim.libsonnet") {
    num_negatives:: null,
    model+: { objective+: { candidate_share: 0.8, lipschitz: false } },
}
