// I have: documents of at least 2,048 tokens, one a line; SentEval's data
// I want: DeCLUTR, of its steps the best on STS-B
// Of all steps that are evaluated, the one with the best development set of STS-B, as SimCSE
// chooses (Gao et al., 2021, appendix A: every 250 steps).
// Where SentEval's data lie:   -o '{"trainer.callbacks.2.data": "…"}'
(import "../declutr.jsonnet") {
    trainer+: {
        callbacks+: [
            {
                type: "evaluate_embeddings",
                data: "SentEval/data",
                tasks: ["STS-B"],
                every_num_steps: 250,
                select_by: "STS-B/cosine Spearman dev",
            },
        ],
    },
}
