// I have: documents of at least 2,048 tokens, one a line
// I want: DeCLUTR with a projection head (figure S1a of its first version)
// DeCLUTR as in its first version (arXiv, June 2020), with the head of its section 6.1 between pooler
// and contrastive loss: two linear layers with ReLU between them, in training only. The figure tries
// widths of projections; both layers have that width, which is what its numbers of parameters (100,000
// to 1,000,000) say. Without ReLU: "feedforward" of AllenNLP with "activations": "linear" for "head".
// The head helped by at most 0.16 points there, and the second version is without it.
(import "declutr.jsonnet") {
    projection:: 128,
    local settings = self,

    dataset_reader+: { placement: "uniform_v1" },
    model+: {
        head: {
            type: "projector",
            hidden_dims: [settings.projection, settings.projection],
            batch_norm: false,
        },
    },
}
