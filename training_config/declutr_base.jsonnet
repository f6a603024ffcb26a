// DeCLUTR-base: three epochs, meant for TRANSFORMER_MODEL=roberta-base.
(import "declutr.jsonnet") {
    num_epochs:: 3,
}
