// I have: rows of a task of GLUE, with their classes
// I want: RECLAIM without selection of negatives
// Table 8, "BERT-CL+Wasserstein only".
(import "random_bank.jsonnet") { model+: { objective+: { lipschitz: true } } }
