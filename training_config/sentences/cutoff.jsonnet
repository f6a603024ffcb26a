// Cutoff (Shen et al., 2020) as the second view, contrasted as SimCSE does; kind: token, span, feature.
// Optimizer: SimCSE's public code; Cutoff's own, of classifiers, has the same Trainer's defaults.
(import "simcse.jsonnet") {
    views:: { type: "cutoff", kind: "token", rate: 0.1 },
}
