// I have: sentences, one a line
// I want: contrast that allows for negatives of the same meaning (debiased)
// Debiased contrast (Chuang et al., 2020) over two dropout passes, with the paper's temperature and
// tau_plus, how probable it is that two sentences belong together. Much lower temperatures leave
// nothing of the negatives: what is taken off grows as exp(1 / temperature).
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
(import "sentences.libsonnet") {
    temperature:: 0.5,
    local settings = self,

    model+: {
        loss: { type: "debiased_contrastive", temperature: settings.temperature, tau_plus: 0.1 },
    },
}
