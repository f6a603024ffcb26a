// I have: sentences, one a line
// I want: no negatives: decorrelated features (Barlow Twins)
// Barlow Twins (Zbontar et al., 2021) over two dropout passes of sentences.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    batch_size:: 192,
    model+: {
        head: { type: "projector", hidden_dims: [4096, 4096, 4096] },
        loss: { type: "barlow_twins" },
    },
}
