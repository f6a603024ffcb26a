// I have: sentences, one a line
// I want: MoCo with harder negatives, made up (MoCHi)
// MoCHi (Kalantidis et al., 2020): MoCo with negatives made up of the hardest ones of its queue,
// once the queue has been filled with keys and the encoder has settled (the paper waits for some
// epochs).
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "moco.jsonnet") {
    temperature:: 0.2,

    model+: {
        loss+: {
            type: "mochi",
            hardest: 1024,
            mixed: 1024,
            mixed_with_query: 128,
            start_after: 1000,  // steps
        },
    },
}
