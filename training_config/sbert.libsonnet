// What the recipes of Sentence-BERT (Reimers & Gurevych, 2019, section 3.1) share: one encoder for
// both texts of a pair, the mean of its token vectors, warm-up over the first tenth of the steps. The
// optimizer's other settings are those of base.libsonnet.
(import "sentences.libsonnet") {
    batch_size:: 16,
    learning_rate:: 2e-5,
    max_length:: 128,  // of the public code
    views:: "spans",  // the texts of the reader
    pooler:: { type: "bag_of_embeddings", averaged: true },

    dataset_reader+: { type: "text_pairs" },
}
