// I have: texts, one a line
// I want: a text VAE whose codes carry more: a beta-VAE
// The weight of the KL term ends at 0.5 for the Penn Treebank, and at 0.4 for Yelp.
(import "text_vae.libsonnet") {
    kl_weight:: self.corpora[self.corpus].beta,
}
