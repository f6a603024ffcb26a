// The same with spectral normalisation (table 8, "BERT-CL+Wasserstein only").
(import "random_bank.jsonnet") { model+: { objective+: { lipschitz: true } } }
