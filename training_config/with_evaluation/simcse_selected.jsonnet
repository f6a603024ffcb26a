// I have: sentences, one a line; SentEval's data
// I want: SimCSE, of its steps the best on STS-B
// Of every 125 steps, the one with the best development set of STS-B, as run_unsup_example.sh of the
// public code chooses; the paper has 250 (appendix A): `selection_steps`.
// Where SentEval's data lie:   -o '{"trainer.callbacks.2.data": "…"}'
// Optimizer: SimCSE's public code, run_unsup_example.sh: the defaults of the Trainer.
(import "../sentences/simcse.jsonnet") + (import "selection.libsonnet")
