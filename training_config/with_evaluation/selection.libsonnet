// The choice among steps of the public codes of SimCSE and SCD, `--load_best_model_at_end`: of every
// so many steps the one with the best development set. Neither the weights of the start nor those
// at the end of an epoch are considered.
{
    selection_task:: "STS-B",
    selection_steps:: 125,
    local settings = self,

    trainer+: {
        callbacks+: [
            {
                type: "evaluate_embeddings",
                data: "SentEval/data",
                tasks: [settings.selection_task],
                every_num_steps: settings.selection_steps,
                every_num_epochs: null,
                select_start: false,
                select_by: settings.selection_task + "/cosine Spearman dev",
            },
        ],
    },
}
