// I have: sentences, one a line
// I want: a second view with tokens, spans or features cut (Cutoff)
// Shen et al. (2020), contrasted as SimCSE does; kind: token, span, feature.
// Optimizer: SimCSE's public code; that of Cutoff's own is in labelled/cutoff_classifier.jsonnet.
(import "simcse.jsonnet") {
    views:: { type: "cutoff", kind: "token", rate: 0.1 },
}
