// I have: sentences, one a line
// I want: each sentence told from all others, by a memory of them
// Instance discrimination (Wu et al., 2018): every sentence a class of its own, told from all
// others by a memory of their projections; exactly, or with `noise` of them drawn a step. The paper's
// proximal term is `proximal`, which is 0 as its public code averages the memory instead (`momentum`).
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
local instances = 1000000;  // at least the rows of train_data_path; each takes 512 bytes
local width = 128;  // of projections, and so of the memory

// Held-out sentences have no place in the memory: no validation_data_path here.
(import "sentences.libsonnet") {
    temperature:: 0.07,
    views:: null,  // there is one
    local settings = self,

    dataset_reader+: { with_ids: true },
    model+: {
        head: { type: "projector", hidden_dims: [width], last_bias: true },
        loss: {
            type: "instance_discrimination",
            instances: instances,
            embedding_size: width,
            temperature: settings.temperature,
            momentum: 0.5,
            noise: 4096,
        },
    },
}
