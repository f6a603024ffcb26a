// I have: premises, hypotheses and labels (NLI), and word vectors
// I want: an encoder without a transformer (InferSent)
// InferSent (Conneau et al., 2017): a bidirectional LSTM over word vectors, the maximum over its
// outputs, and a classifier of (u, v, |u - v|, u * v). train_data_path and validation_data_path are
// tables with premise, hypothesis and label, such as SNLI. With vectors of GloVe (text, 300 wide):
//
//   (import "training_config/labelled/infersent.jsonnet") { word_vectors:: "glove.840B.300d.txt" }
//
// They are kept as they are, and words without one share a vector (the public code drops them).
// Without a file, vectors are random and trained. Rates fall by 0.99 every epoch, and to a fifth when
// the accuracy on the validation data does not rise; below 1e-5 the public code stops, and this goes
// on to its last epoch. Padding is left out of the maximum, as in version 2 of the public encoder.
// Optimizer: InferSent's public code, train_nli.py.
local of_transformers = ["transformer_model", "masked_language_modeling", "temperature"];

(import "sbert.libsonnet") { transformer_model:: null }
+ (import "../unused.libsonnet")(of_transformers) {
    batch_size:: 64,
    num_epochs:: 20,
    learning_rate:: 0.1,
    optimizer:: (import "../optimizers.libsonnet").infersent,
    word_vectors:: null,
    word_size:: 300,
    lstm_size:: 2048,  // of each direction
    local settings = self,
    local of_file(keys) = if settings.word_vectors == null then {} else keys,

    vocabulary: {
        type: "from_instances",
        tokens_to_add: { tokens: ["<s>", "</s>"] },  // indexers do not count what they add
    } + of_file({
        pretrained_files: { tokens: settings.word_vectors },
        only_include_pretrained_words: true,
    }),
    dataset_reader+: {
        labels: "nli",
        tokenizer: { type: "letters_digits" },  // "whitespace" for data in tokens, as SNLI's parses
        token_indexers: {
            tokens: { type: "single_id", start_tokens: ["<s>"], end_tokens: ["</s>"] },
        },
    },
    model+: {
        text_field_embedder: {
            type: "basic",
            token_embedders: {
                tokens: {
                    type: "embedding",
                    embedding_dim: settings.word_size,
                } + of_file({ pretrained_file: settings.word_vectors, trainable: false }),
            },
        },
        seq2vec_encoder: {
            type: "token_pooling",
            pooling: "max",
            encoder: {
                type: "lstm",
                input_size: settings.word_size,
                hidden_size: settings.lstm_size,
                bidirectional: true,
            },
        },
        loss: {
            type: "pair_softmax",
            num_labels: 3,
            embedding_size: 2 * settings.lstm_size,
            concatenation: ["u", "v", "difference", "product"],
            hidden_dims: [512, 512],  // without activations, by default of the public code
        },
    },
    data_loader+: { drop_last: false },
    trainer+: { validation_metric: "+class_accuracy", grad_norm: 5.0 },
}
