// I have: sentences, one a line
// I want: the triplet loss over all triplets of a batch
// All triplets of a batch (Schroff et al., 2015, FaceNet) over two dropout passes, on the unit
// sphere. For triplets that the data bring, see labelled/sbert_triplet.jsonnet.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: {
        loss: { type: "triplet", margin: 0.2, squared: true, normalize_embeddings: true },
    },
}
