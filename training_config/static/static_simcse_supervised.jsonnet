// I have: pairs of texts that belong together, and no GPU
// I want: an encoder of these pairs without a transformer, in minutes (static supervised SimCSE)
// Supervised SimCSE over the mean of token vectors: the other texts of the batch are the negatives.
// train_data_path is a table with the columns anchor and positive, or others:
// -o '{"dataset_reader.anchor": "question", "dataset_reader.positive": "answer"}'. Hard negatives:
// -o '{"dataset_reader.negative": "negative"}'; of NLI: -o '{"dataset_reader.format": "nli"}'.
// TRANSFORMER_MODEL is a folder of `declutr static-vectors`.
// Optimizer: no public code; see optimizers.libsonnet.
(import "../labelled/simcse_supervised.jsonnet") + (import "static.libsonnet") {
    max_length:: 256,

    dataset_reader+: { format: null },
    model+: { head: null, initializer: null },
}
