// I have: premises, hypotheses and labels (NLI)
// I want: an encoder by a classifier of pairs (Sentence-BERT)
// Sentence-BERT on natural language inference: a classifier of (u, v, |u - v|). train_data_path is a
// table with premise, hypothesis and label, such as SNLI and MNLI.
// Optimizer: Sentence-BERT's public code, `fit`: see optimizers.libsonnet.
(import "sbert.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    embedding_size:: 768,  // of TRANSFORMER_MODEL
    local settings = self,

    dataset_reader+: { labels: "nli" },
    model+: {
        loss: { type: "pair_softmax", num_labels: 3, embedding_size: settings.embedding_size },
    },
}
