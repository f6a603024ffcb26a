// I have: sentences, one a line
// I want: SimCSE for RoBERTa
// The settings of the public code's README for RoBERTa-base.
// Optimizer: SimCSE's public code, run_unsup_example.sh: the defaults of the Trainer.
(import "simcse.jsonnet") {
    default_transformer:: "roberta-base",
    batch_size:: 512,  // where it does not fit: model.chunk_size
    learning_rate:: 1e-5,
}
