// I have: sentences, one a line
// I want: debiased contrast with hard negatives weighted up
// Hard negatives weighted up (Robinson et al., 2021), on top of debiasing. beta: how much.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "debiased.jsonnet") {
    model+: { loss+: { type: "hard_negative", beta: 1.0 } },
}
