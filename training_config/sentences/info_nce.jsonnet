// I have: sentences, one a line
// I want: InfoNCE in both directions, as in CLIP
// InfoNCE in both directions (van den Oord et al., 2018; Radford et al., 2021, CLIP) over two
// dropout passes. CLIP learns its temperature, which begins at 0.07; here it stays.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "sentences.libsonnet") {
    model+: {
        loss: { type: "info_nce", similarity: "cosine", temperature: 0.07, symmetric: true },
    },
}
