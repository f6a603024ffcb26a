// I have: sentences, one a line
// I want: no negatives, one encoder (SimSiam)
// SimSiam (Chen & He, 2021): BYOL without a second encoder. The target of a view is the projection
// of the other one, without its gradient. The projector ends with a batch normalisation without scale
// and offset, and the predictor with a bias, as in the public code.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "byol.jsonnet") {
    model+: {
        head: { type: "projector", hidden_dims: [2048, 2048, 2048], last_batch_norm: true },
        predictor: { type: "projector", hidden_dims: [512, 2048], last_bias: true },
        momentum_encoder: null,
    },
}
