// Optimizers and schedules of the methods' public codes. A recipe takes one of them:
//
//   optimizer:: (import "optimizers.libsonnet").trainer
//
// `learning_rate` is the recipe's. docs/OBJECTIVES.md has a table of who takes which, and why.

// No decay on biases and normalisation layers, by the type of the module.
local spared = [[["@norms_and_biases"], { weight_decay: 0.0 }]];

{
    // DeCLUTR (Giorgi et al., 2021), training_config/declutr.jsonnet of the public code: BERT's AdamW,
    // without bias correction.
    declutr: {
        optimizer: {
            type: "huggingface_adamw",
            eps: 1e-6,
            correct_bias: false,
            weight_decay: 0.1,
            parameter_groups: spared,
        },
        learning_rate_scheduler: {
            type: "slanted_triangular",  // the loader knows the number of steps
            cut_frac: 0.1,
            ratio: 32,
        },
    },

    // The defaults of the `Trainer` of transformers, which the public codes of SimCSE and SCD leave as
    // they are: no decay, no warm-up.
    trainer: {
        optimizer: {
            type: "huggingface_adamw",
            betas: [0.9, 0.999],
            eps: 1e-8,
            correct_bias: true,
            weight_decay: 0.0,
        },
        learning_rate_scheduler: { type: "linear_decay" },
    },

    // `SentenceTransformer.fit` of the public code of Sentence-BERT, with the warm-up of its examples.
    sentence_bert: {
        optimizer: {
            type: "huggingface_adamw",
            betas: [0.9, 0.999],
            eps: 1e-6,
            correct_bias: false,
            weight_decay: 0.01,
            parameter_groups: spared,
        },
        learning_rate_scheduler: { type: "linear_decay", warmup_share: 0.1 },
    },

    // The public code of IS-BERT: its `fit` is that of Sentence-BERT with another eps.
    is_bert: self.sentence_bert { optimizer+: { eps: 1e-7 } },

    // train_nli.py of the public code of InferSent. It divides the learning rate of a step by what the
    // norm of its gradients has above `grad_norm`, which is what clipping does.
    infersent: {
        optimizer: { type: "sgd", momentum: 0.0, weight_decay: 0.0 },
        learning_rate_scheduler: { type: "shrinking_decay", decay: 0.99, shrink: 5.0 },
    },

    // The public code of Quick-Thoughts: TensorFlow's Adam as it is, at the same rate throughout.
    quick_thoughts: self.trainer { learning_rate_scheduler: null },

    // MOCO.py of the public code of CERT: SGD, and a cosine that moves from epoch to epoch. (There
    // decay falls on all parameters, at that rate by 4e-10 of their value a step.)
    cert(epochs): {
        optimizer: {
            type: "sgd",
            momentum: 0.9,
            weight_decay: 1e-5,
            parameter_groups: spared,
        },
        learning_rate_scheduler: { type: "cosine", t_initial: epochs },
    },

    // The public code of Contrastive Tension, Training.py: TensorFlow's RMSprop as it is, at 1e-5 for
    // 501 steps, and then at 8, 6, 4 and 2e-6.
    contrastive_tension: {
        optimizer: { type: "rmsprop", alpha: 0.9, eps: 1e-7 },
        learning_rate_scheduler: {
            type: "piecewise_constant",
            boundaries: [500, 1000, 1500, 2000],
            factors: [1.0, 0.8, 0.6, 0.4, 0.2],
        },
    },

    // Tables of token vectors: no public code. The `Trainer`'s AdamW, with a warm-up.
    static: self.trainer {
        learning_rate_scheduler: { type: "linear_decay", warmup_share: 0.1 },
    },
}
