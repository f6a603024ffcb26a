// The critic without spectral normalisation, negatives selected as in RECLAIM. The paper does not have it.
(import "../reclaim.libsonnet") { model+: { objective+: { lipschitz: false } } }
