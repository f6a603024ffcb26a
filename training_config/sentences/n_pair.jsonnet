// I have: sentences, one a line
// I want: InfoNCE of dot products (N-pair)
// The N-pair loss (Sohn, 2016) over two dropout passes: InfoNCE of dot products, without
// temperature.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: { loss: { type: "n_pair" } },
}
