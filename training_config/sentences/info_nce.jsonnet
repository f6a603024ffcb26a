// I have: sentences, one a line
// I want: InfoNCE in both directions, at a fixed temperature
// InfoNCE in both directions (van den Oord et al., 2018; Radford et al., 2021, CLIP) over two
// dropout passes. The temperature is the one that CLIP begins with, and stays: `clip` learns it.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "sentences.libsonnet") {
    temperature:: 0.07,
    local settings = self,

    model+: {
        loss: {
            type: "info_nce",
            similarity: "cosine",
            temperature: settings.temperature,
            symmetric: true,
        },
    },
}
