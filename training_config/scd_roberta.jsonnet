// SCD with the paper's settings for RoBERTa.
(import "scd.jsonnet") {
    views:: { type: "dropout_rates", low: 0.065, high: 0.24 },
    model+: { loss+: { decorrelation_weight: 0.0033, redundancy_weight: 0.028 } },
}
