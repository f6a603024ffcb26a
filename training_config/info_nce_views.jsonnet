// I have: documents of at least 2,048 tokens, one a line
// I want: InfoNCE between all spans of a passage, no mean of positives (CMC)
// InfoNCE over every pair of views, the full graph of CMC (Tian et al., 2020): an anchor of DeCLUTR and
// each of its positives are views of their own.
(import "contrastive_only.jsonnet") {
    temperature:: 0.07,
    local settings = self,

    model+: {
        loss: {
            type: "info_nce",
            similarity: "cosine",
            temperature: settings.temperature,
            symmetric: true,
            view_pairs: "full_graph",
        },
    },
}
