// I have: documents of at least 2,048 tokens, one a line
// I want: DeCLUTR without masked language modelling
// No token is masked, and the language modelling head is not even loaded.
(import "declutr.jsonnet") {
    masked_language_modeling:: false,
}
