// I have: documents of at least 2,048 tokens, one a line
// I want: DeCLUTR-base: roberta-base, three epochs
(import "declutr.jsonnet") {
    default_transformer:: "roberta-base",
    num_epochs:: 3,
}
