// The critic without spectral normalisation.
(import "../reclaim.libsonnet") { model+: { objective+: { lipschitz: false } } }
