// I have: sentences, one a line
// I want: SCD for RoBERTa
// The paper's settings.
// Optimizer: SCD's public code, the command of its README: the defaults of the Trainer.
(import "scd.jsonnet") {
    default_transformer:: "roberta-base",
    views:: { type: "dropout_rates", low: 0.065, high: 0.24 },
    model+: { loss+: { decorrelation_weight: 0.0033, redundancy_weight: 0.028 } },
}
