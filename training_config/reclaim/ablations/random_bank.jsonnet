// Without active selection of negatives: all of a random 80 % of the banks, drawn anew in every step, and
// the critic without spectral normalisation (table 5, "80% w/o ANS", which is table 8's "BERT-CL").
(import "../reclaim.libsonnet") {
    num_negatives:: null,
    model+: { objective+: { candidate_share: 0.8, lipschitz: false } },
}
