// The N-pair loss (Sohn, 2016) over two dropout passes: InfoNCE of dot products, without
// temperature.
(import "sentences.libsonnet") {
    model+: { loss: { type: "n_pair" } },
}
