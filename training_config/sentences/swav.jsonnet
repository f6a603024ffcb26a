// I have: sentences, one a line
// I want: no negatives: clusters of both views agree (SwAV)
// SwAV (Caron et al., 2020) over two dropout passes: each view predicts the prototypes that the
// other one is assigned to. The queue is the paper's for small batches; it serves once it is full (the
// public code begins to fill it in its epoch 15). Prototypes have length 1 before every update, and the
// first updates leave them as they are: there for an epoch of its images, which is 313 with batches of
// 4,096, as here, and 5,005 with batches of 256, more than a million sentences have.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
local width = 128;  // of projections, and so of prototypes

(import "sentences.libsonnet") {
    batch_size:: 256,
    temperature:: 0.1,
    local settings = self,

    model+: {
        head: { type: "projector", hidden_dims: [2048, width], last_bias: true },
        loss: {
            type: "swav",
            embedding_size: width,
            prototypes: 3000,
            temperature: settings.temperature,
            epsilon: 0.05,
            queue_size: 3840,
            renormalise: true,
            frozen_steps: 313,
        },
    },
}
