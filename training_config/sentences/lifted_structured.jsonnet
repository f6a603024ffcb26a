// I have: sentences, one a line
// I want: the lifted structured loss
// The lifted structured loss (Oh Song et al., 2016) over two dropout passes, on the unit sphere:
// each pair against all negatives of both its sentences.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: {
        loss: { type: "lifted_structured", margin: 1.0, normalize_embeddings: true },
    },
}
