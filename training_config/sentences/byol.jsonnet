// I have: sentences, one a line
// I want: no negatives: a target that moves slowly (BYOL)
// BYOL (Grill et al., 2020) over two dropout passes: predict what a slowly moving target gives of the
// other view. There are no negatives.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
local head = { type: "projector", hidden_dims: [4096, 256] };

(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: {
        head: head,
        predictor: head,
        momentum_encoder: { momentum: 0.996, schedule: "cosine" },
        loss: { type: "byol" },
    },
}
