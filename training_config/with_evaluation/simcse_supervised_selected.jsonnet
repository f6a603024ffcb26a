// I have: premises, hypotheses and labels (NLI); SentEval's data
// I want: supervised SimCSE, of its steps the best on STS-B
// Of every 125 steps, as run_sup_example.sh of the public code chooses.
// Where SentEval's data lie:   -o '{"trainer.callbacks.2.data": "…"}'
// Optimizer: SimCSE's public code, run_sup_example.sh: the defaults of the Trainer.
(import "../labelled/simcse_supervised.jsonnet") + (import "selection.libsonnet")
