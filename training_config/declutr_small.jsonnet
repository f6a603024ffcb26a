// I have: documents of at least 2,048 tokens, one a line
// I want: DeCLUTR-small: distilroberta-base, one epoch
(import "declutr.jsonnet") {
    default_transformer:: "distilroberta-base",
    num_epochs:: 1,
}
