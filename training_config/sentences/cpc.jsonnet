// I have: sentences in their order, one a line, blank lines between documents
// I want: sentences from which the next ones can be told (CPC)
// Contrastive predictive coding (van den Oord et al., 2018, section 3.3): a GRU over the sentences of
// a document predicts the next three embeddings among those of the batch. The embedding of a text
// is the encoder's; GRU and matrices serve training only. `declutr split-sentences` writes such a file.
// Optimizer: the paper's Adam at one rate, and its rate for GRU and matrices, which begin at random.
local width = 768;  // of TRANSFORMER_MODEL

(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    learning_rate:: 3e-5,  // of the transformer; the paper's encoder begins from random weights
    optimizer:: (import "../optimizers.libsonnet").quick_thoughts,
    views:: null,  // there is one
    dataset_reader+: { with_ids: true },
    data_loader+: { consecutive: true },
    model+: {
        loss: { type: "cpc", embedding_size: width, steps: 3 },
    },
    trainer+: { optimizer+: { parameter_groups: [[["^_loss\\."], { lr: 2e-4 }]] } },
}
