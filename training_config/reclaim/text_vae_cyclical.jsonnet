// I have: texts, one a line
// I want: a text VAE whose KL term is annealed in cycles
// Fu et al. (2019), with the cycles of iVAE's public code: of 10 epochs, rising over all of them.
(import "text_vae.libsonnet") {
    cycle_epochs:: 10,
}
