// I have: sentences, one a line
// I want: a second view with tokens, spans or features cut (Cutoff)
// Shen et al. (2020), contrasted as SimCSE does; kind: token, span, feature.
// Optimizer: SimCSE's public code; Cutoff's own, of classifiers, has the same Trainer's defaults.
(import "simcse.jsonnet") {
    views:: { type: "cutoff", kind: "token", rate: 0.1 },
}
