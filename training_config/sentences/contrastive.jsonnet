// I have: sentences, one a line
// I want: the contrastive loss, with a margin
// The contrastive loss (Chopra et al., 2005; Hadsell et al., 2006) over two dropout passes, on the
// unit sphere, where unrelated sentences lie about 1.4 apart.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: {
        loss: { type: "contrastive", margin: 1.0, normalize_embeddings: true },
    },
}
