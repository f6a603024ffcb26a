// I have: premises, hypotheses and labels (NLI)
// I want: an encoder by entailment, contradictions as hard negatives (supervised SimCSE)
// Supervised SimCSE (Gao et al., 2021): premises, what they entail, and what contradicts them as hard
// negatives of the whole batch. train_data_path is a table with premise, hypothesis and label. The
// head serves training only, as without labels; the public code embeds through it here.
// Optimizer: SimCSE's public code, run_sup_example.sh: the defaults of the Trainer.
(import "../sentences/simcse.jsonnet") {
    batch_size:: 512,  // where it does not fit: model.chunk_size
    learning_rate:: 5e-5,
    num_epochs:: 3,
    views:: "spans",  // the texts of the reader

    dataset_reader+: { type: "text_pairs", format: "nli" },
}
