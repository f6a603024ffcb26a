// I have: sentences, one a line
// I want: an encoder by what can be told of a sentence from its embedding alone (TSDAE)
// TSDAE (Wang et al., 2021): six tenths of the words of a sentence are deleted, and a decoder that
// shares the encoder's weights reconstructs the sentence from the embedding of what is left. Steps of 8
// sentences, as in the paper, which takes 100,000 of them; here they are num_epochs of the file.
// Optimizer: TSDAE's public code, `fit` of Sentence-BERT's: constant rate, no decay.
(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    batch_size:: 8,
    learning_rate:: 3e-5,
    optimizer:: (import "../optimizers.libsonnet").trainer {
        optimizer+: { eps: 1e-6 },
        learning_rate_scheduler: null,
    },
    max_length:: null,
    masked_language_modeling:: true,  // the head, which predicts the tokens of the decoder
    views:: "spans",  // of the reader: anchors and positives

    dataset_reader+: {
        type: "augmented",
        augmentation: { type: "eda", replacement: 0, insertion: 0, swap: 0, deletion: 0.6 },
    },
    model+: { loss: null, reconstruct: true },
}
