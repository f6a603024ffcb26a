// I have: sentences, one a line
// I want: RECLAIM as the objective of an encoder, the hardest of all sentences as negatives
// RECLAIM as the objective of a sentence encoder: u and v are the embeddings of two dropout passes,
// negatives the hardest of all sentences. The paper does not do this.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
local instances = 1000000;  // at least the rows of train_data_path; each takes 6 kB

// Held-out sentences have no slot in the banks: no validation_data_path here.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    dataset_reader+: { with_ids: true },
    model+: {
        loss: {
            type: "reclaim",
            instances: instances,
            embedding_size: 768,  // of the transformer
            num_negatives: 100,
        },
    },
}
