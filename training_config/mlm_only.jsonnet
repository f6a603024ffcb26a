// Masked language modelling alone, on the same spans: the paper's baseline, and how to warm up a
// transformer on one's own text.
(import "declutr.jsonnet") {
    num_positives:: 1,  // positives are not encoded
    model+: { loss: null },
}
