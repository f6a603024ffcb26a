// I have: sentences, one a line
// I want: several objectives at once
// Unsupervised SimCSE, and a little of alignment and uniformity beside it. The log has the value
// of each.
// Optimizer: SimCSE's public code, run_unsup_example.sh: the defaults of the Trainer.
(import "simcse.jsonnet") {
    model+: {
        local of_simcse = super.loss,
        loss: {
            type: "weighted_sum",
            objectives: [
                { objective: of_simcse },
                { objective: { type: "align_uniform" }, weight: 0.1 },
            ],
        },
    },
}
