// I have: texts, one a line
// I want: a text VAE with an implicit posterior: iVAE
// Fang et al. (2019): codes are made of a text and noise, and a network estimates their KL term.
(import "text_vae.libsonnet") {
    posterior:: { type: "implicit", dual_size: 512, prior_draws: 5, particles: 128 },
}
