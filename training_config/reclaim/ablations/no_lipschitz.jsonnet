// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM without spectral normalisation of the critic
// Negatives are selected as in RECLAIM. The paper does not have this one.
(import "../reclaim.libsonnet") { model+: { objective+: { lipschitz: false } } }
