// I have: sentences, one a line
// I want: clusters of all sentences as labels, found anew for every epoch (DeepCluster)
// DeepCluster (Caron et al., 2018) over sentences: k-means of all embeddings, then an epoch of telling
// each sentence's cluster by a new classifier, and so on. Clusters weigh the same, whatever their size.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
local instances = 1000000;  // at least the rows of train_data_path

// Held-out sentences have no clusters: no validation_data_path here.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    num_epochs:: 5,  // each begins with a pass over all sentences
    views:: null,  // there is one
    dataset_reader+: { with_ids: true },
    model+: {
        loss: {
            type: "deep_cluster",
            instances: instances,
            embedding_size: 768,  // of the transformer
            clusters: 10000,  // the paper's, for 1.3 million images
        },
    },
    trainer+: {
        callbacks+: [{ type: "refresh_clusters", dimension: 256, seed: $.pytorch_seed }],
    },
}
