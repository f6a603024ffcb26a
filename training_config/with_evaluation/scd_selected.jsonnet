// I have: sentences, one a line; SentEval's data
// I want: SCD, of its steps the best on SICK-R
// Of all steps that are evaluated, every 250, the one with the best development set of SICK-R, as the
// public code chooses.
// Where SentEval's data lie:   -o '{"trainer.callbacks.2.data": "…"}'
// Optimizer: SCD's public code, the command of its README: the defaults of the Trainer.
(import "../sentences/scd.jsonnet") {
    trainer+: {
        callbacks+: [
            {
                type: "evaluate_embeddings",
                data: "SentEval/data",
                tasks: ["SICK-R"],
                every_num_steps: 250,
                select_by: "SICK-R/cosine Spearman dev",
            },
        ],
    },
}
