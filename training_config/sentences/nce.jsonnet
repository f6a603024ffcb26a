// I have: sentences, one a line
// I want: each pair decided on its own, as in SigLIP (NCE)
// Noise contrastive estimation (Gutmann & Hyvarinen, 2010) over two dropout passes: pair or not,
// each decided on its own. Scale and bias are learnt and begin as in SigLIP (Zhai et al., 2023).
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: {
        loss: {
            type: "nce",
            scale: 10.0,
            bias: -10.0,
            learn_scale: true,
            learn_bias: true,
        },
    },
}
