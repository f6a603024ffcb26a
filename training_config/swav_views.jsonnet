// I have: documents of at least 2,048 tokens, one a line
// I want: no negatives: spans agree with the clusters of their anchor (SwAV, multi-crop)
// SwAV (Caron et al., 2020) over the spans of DeCLUTR: the anchor, on average the longer span, is the
// large crop, which is assigned to prototypes; each of its six positives is a small crop, which only
// predicts. The rest is as in `sentences/swav`.
local swav = import "sentences/swav.jsonnet";

(import "contrastive_only.jsonnet") {
    num_positives:: 6,
    temperature:: swav.temperature,
    local settings = self,

    model+: {
        head: swav.model.head,
        loss: swav.model.loss { assigned_views: 1, temperature: settings.temperature },
    },
}
