// I have: sentences, one a line
// I want: SCD for BERT as its public code has it
// The settings of the README.
// Optimizer: SCD's public code, the command of its README: the defaults of the Trainer.
(import "scd.jsonnet") {
    views:: { type: "dropout_rates", low: 0.05, high: 0.155 },
    model+: { loss+: { decorrelation_weight: 0.005225, redundancy_weight: 0.012 } },
}
