// Ablation of SCD: self-contrast alone. Nothing but the length of training keeps cosines from -1.
(import "scd.jsonnet") {
    model+: { loss+: { decorrelation_weight: 0.0 } },
}
