// DeCLUTR-small: one epoch, meant for TRANSFORMER_MODEL=distilroberta-base.
(import "declutr.jsonnet") {
    num_epochs:: 1,
}
