// I have: texts, one a line
// I want: a text VAE with RECLAIM beside its loss
// An LSTM to a code and one back. model.objective.instances is the number of lines.
local base = import "words.libsonnet";

base {
    word_size:: 512,
    state_size:: 1024,
    latent_size:: 32,
    annealing_steps:: 30000,  // batches until the KL term has its whole weight
    instances:: 100000,  // lines of train_data_path, blank ones too
    weight:: 0.1,  // lambda
    batch_size:: 32,
    num_epochs:: 30,
    learning_rate:: 1e-3,
    local settings = self,

    vocabulary: { type: "from_instances", max_vocab_size: { tokens: 20000 } },
    dataset_reader: { type: "text_lines", max_tokens: 200, with_ids: true },
    model: {
        type: "reclaim",
        weight: settings.weight,
        u: "latent",
        v: "word_embeddings",
        objective: { type: "reclaim", instances: settings.instances, num_negatives: 100 },
        model: {
            type: "text_vae",
            text_field_embedder: {
                token_embedders: {
                    tokens: { type: "embedding", embedding_dim: settings.word_size },
                },
            },
            seq2vec_encoder: {
                type: "lstm",
                input_size: settings.word_size,
                hidden_size: settings.state_size,
            },
            latent_size: settings.latent_size,
            decoder_size: settings.state_size,
            word_dropout: 0.25,
            dropout: 0.3,
            annealing_steps: settings.annealing_steps,
        },
    },
    data_loader: { batch_size: settings.batch_size, shuffle: true },
    validation_data_loader: self.data_loader { shuffle: false },
    trainer+: {
        optimizer: { type: "adam", lr: settings.learning_rate },
        grad_norm: 5.0,
        learning_rate_scheduler: null,
        validation_metric: "-negative_elbo",
    },
}
