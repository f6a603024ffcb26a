// What the recipes of Sentence-BERT (Reimers & Gurevych, 2019, section 3.1) share: one encoder for
// both texts of a pair, the mean of its token vectors, and the optimizer of the public code's `fit`.
(import "../sentences/sentences.libsonnet") {
    default_transformer:: "bert-base-uncased",
    batch_size:: 16,
    learning_rate:: 2e-5,
    optimizer:: (import "../optimizers.libsonnet").sentence_bert,
    max_length:: 130,  // the 128 word pieces of the public code, and two special tokens
    views:: "spans",  // the texts of the reader
    pooler:: { type: "bag_of_embeddings", averaged: true },

    dataset_reader+: { type: "text_pairs" },
}
