// I have: sentences, one a line
// I want: an ablation of SCD: decorrelation alone
// Optimizer: SCD's public code, the command of its README: the defaults of the Trainer.
(import "scd.jsonnet") {
    model+: { loss+: { contrast_weight: 0.0 } },
}
