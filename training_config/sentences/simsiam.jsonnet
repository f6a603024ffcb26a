// I have: sentences, one a line
// I want: no negatives, one encoder (SimSiam)
// SimSiam (Chen & He, 2021): BYOL without a second encoder. The target of a view is the projection
// of the other one, without its gradient.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "byol.jsonnet") {
    model+: {
        head: { type: "projector", hidden_dims: [2048, 2048, 2048] },
        predictor: { type: "projector", hidden_dims: [512, 2048] },
        momentum_encoder: null,
    },
}
