// Hard negatives weighted up (Robinson et al., 2021), on top of debiasing. beta: how much.
(import "debiased.jsonnet") {
    model+: { loss+: { type: "hard_negative", beta: 1.0 } },
}
