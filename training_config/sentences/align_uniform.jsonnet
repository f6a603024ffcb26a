// I have: sentences, one a line
// I want: alignment and uniformity as the loss
// Alignment and uniformity themselves as the loss (Wang & Isola, 2020), over two dropout passes.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: {
        loss: { type: "align_uniform", align_weight: 1.0, uniform_weight: 1.0 },
    },
}
