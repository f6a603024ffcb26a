// I have: sentences, one a line
// I want: InfoNCE in both directions, at a temperature that is learnt (CLIP)
// The loss of CLIP (Radford et al., 2021) over two dropout passes: the logarithm of 1 / temperature is
// learnt from 0.07 on, and cut off at 100. Decay, if there is any, spares it, as in OpenCLIP.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "info_nce.jsonnet") {
    local spared = [[["@norms_and_biases", "log_scale"], { weight_decay: 0.0 }]],

    model+: { loss+: { learn_temperature: true } },
    trainer+: { optimizer+: { parameter_groups: spared } },
}
