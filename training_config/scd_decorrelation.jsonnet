// Ablation of SCD: decorrelation alone.
(import "scd.jsonnet") {
    model+: { loss+: { contrast_weight: 0.0 } },
}
