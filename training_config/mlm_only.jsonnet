// I have: documents of at least 2,048 tokens, one a line
// I want: a transformer that knows my text: masked language modelling alone
// On the spans of DeCLUTR: the paper's baseline, and how to warm up a transformer on one's own text.
(import "declutr.jsonnet") + (import "unused.libsonnet")(["temperature"]) {
    num_positives:: 1,  // positives are not encoded
    model+: { loss: null },
}
