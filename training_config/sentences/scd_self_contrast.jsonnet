// I have: sentences, one a line
// I want: an ablation of SCD: self-contrast alone
// Nothing but the length of training keeps cosines from -1.
// Optimizer: SCD's public code, the command of its README: the defaults of the Trainer.
(import "scd.jsonnet") {
    model+: { loss+: { decorrelation_weight: 0.0 } },
}
