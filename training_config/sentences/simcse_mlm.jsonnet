// I have: sentences, one a line
// I want: SimCSE with masked language modelling beside it
// Unsupervised SimCSE with masked language modelling beside it, in a pass of its own and with the
// weight 0.1 (Gao et al., 2021, section 6.3).
// Optimizer: SimCSE's public code, run_unsup_example.sh: the defaults of the Trainer.
(import "simcse.jsonnet") {
    masked_language_modeling:: true,
    model+: { mlm_weight: 0.1 },
}
