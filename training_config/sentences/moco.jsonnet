// I have: sentences, one a line
// I want: a small batch and many negatives, of a momentum encoder (MoCo)
// MoCo (He et al., 2020) over two dropout passes: keys of a momentum encoder, a queue of negatives.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
local width = 256;  // of projections, and so of the queue

(import "sentences.libsonnet") {
    temperature:: null,  // that of the loss, 0.07
    local settings = self,

    model+: {
        head: { type: "projector", hidden_dims: [1024, width], batch_norm: false },
        momentum_encoder: { momentum: 0.999 },
        loss: {
            type: "moco",
            embedding_size: width,
            queue_size: 16384,
            [if settings.temperature != null then "temperature"]: settings.temperature,
        },
    },
}
