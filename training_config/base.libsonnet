// What every recipe shares. A recipe is a few lines on top of this: see declutr.jsonnet.
//
// From outside:
//   TRANSFORMER_MODEL   a name on the Hugging Face hub, or a folder: an environment variable. Without
//                       it, training starts from the recipe's default_transformer.
//   -o '{"train_data_path": "docs.txt"}'   any key, as with every AllenNLP recipe.

{
    // ---- settings of recipes (hidden: they do not end up in the configuration) ----
    default_transformer:: "distilroberta-base",  // AllenNLP takes it where TRANSFORMER_MODEL is not set
    transformer_model:: std.extVar("TRANSFORMER_MODEL"),
    num_anchors:: 2,
    num_positives:: 2,
    max_span_len:: 512,
    min_span_len:: 32,
    batch_size:: 16,
    num_epochs:: 1,
    learning_rate:: 5e-5,
    optimizer:: (import "optimizers.libsonnet").declutr,
    temperature:: 0.05,
    seed:: 13370,  // of everything that is drawn
    masked_language_modeling:: true,
    local settings = self,

    random_seed: settings.seed,
    numpy_seed: settings.seed,
    pytorch_seed: settings.seed,

    vocabulary: { type: "empty" },  // the tokenizer's ids are used as they are
    dataset_reader: {
        type: "declutr",
        num_anchors: settings.num_anchors,
        num_positives: settings.num_positives,
        max_span_len: settings.max_span_len,
        min_span_len: settings.min_span_len,
        seed: settings.seed,
        tokenizer: {
            type: "pretrained_transformer",
            model_name: settings.transformer_model,
        },
        token_indexers: {
            tokens: {
                type: "pretrained_transformer",
                model_name: settings.transformer_model,
            },
        },
    },
    train_data_path: null,
    validation_data_path: null,

    model: {
        type: "declutr",
        text_field_embedder: {
            type: "mlm",
            token_embedders: {
                tokens: {
                    type: "pretrained_transformer_mlm",
                    model_name: settings.transformer_model,
                    masked_language_modeling: settings.masked_language_modeling,
                },
            },
        },
        loss: {
            type: "nt_xent",
            temperature: settings.temperature,
        },
    },

    data_loader: {
        type: "declutr",
        batch_size: settings.batch_size,  // documents a step and process
        shuffle: true,
        drop_last: true,  // a contrastive loss depends on the size of its batch
        num_workers: 1,
        seed: settings.seed,
    },
    // All documents, and the same spans in every epoch, so that validation losses compare.
    validation_data_loader: self.data_loader {
        shuffle: false,
        drop_last: false,
        resample: false,
        subset:: null,  // a recipe's is of its training data
    },

    trainer: {
        type: "declutr",
        num_epochs: settings.num_epochs,
        optimizer: settings.optimizer.optimizer { lr: settings.learning_rate },
        grad_norm: 1.0,
        learning_rate_scheduler: settings.optimizer.learning_rate_scheduler,
        checkpointer: {
            type: "atomic",
            save_every_num_batches: 1000,
            keep_most_recent_by_count: 2,
        },
        callbacks: [
            { type: "run_record" },
            { type: "exact_resume", seed: settings.seed },
        ],
        // AllenNLP's check does not see the activation in RoBERTa's language modelling head and
        // takes it for a bias right before a normalisation.
        run_confidence_checks: false,
    },
}
