// I have: sentences, one a line; SentEval's data
// I want: SCD, of its steps the best on SICK-R
// Of every 250 steps, the one with the best development set of SICK-R, as the command of the public
// code's README chooses.
// Where SentEval's data lie:   -o '{"trainer.callbacks.2.data": "…"}'
// Optimizer: SCD's public code, the command of its README: the defaults of the Trainer.
(import "../sentences/scd.jsonnet") + (import "selection.libsonnet") {
    selection_task:: "SICK-R",
    selection_steps:: 250,
}
