// What the recipes of text VAEs share: the settings of the public code of iVAE (Fang et al., 2019)
// for language modelling, which RECLAIM's paper takes over for its tables 4 and 7.
//
// Another corpus is a line: (import "training_config/reclaim/text_ivae.jsonnet") { corpus:: "yelp" }

local corpora = {
    // 42,068 sentences, one a line, of 10,000 words.
    ptb: {
        instances: 42068,
        word_size: 256,
        state_size: 256,
        learning_rate: 1e-3,
        first: 0.1,
        beta: 0.5,
        labelled: false,
        unknown: "<unk>",
    },
    // 100,000 reviews of 20,000 words, each behind its label and a tab.
    yelp: {
        instances: 100000,
        word_size: 512,
        state_size: 1024,
        learning_rate: 8e-4,
        first: 0.01,
        beta: 0.4,
        labelled: true,
        unknown: "_UNK",
    },
    // The same of 100,000 answers without labels; longer ones than 200 tokens are left out.
    yahoo: self.yelp { labelled: false, max_tokens: 200 },
};

(import "words.libsonnet") {
    corpus:: "ptb",
    corpora:: corpora,
    local of = self.corpora[self.corpus],
    instances:: of.instances,  // lines of train_data_path, blank ones too
    word_size:: of.word_size,
    state_size:: of.state_size,
    latent_size:: 32,
    vocabulary_size:: 20000,
    posterior:: { type: "gaussian" },
    kl_weight:: 1,  // the last one
    warmup_epochs:: 10,  // in which the weight of the KL term would rise from 0 to 1; it begins at 0.1
    cycle_epochs:: null,  // after which it rises anew
    contrast:: null,  // "bank" is RECLAIM, "batch" is vanilla CL: negatives are those of the batch
    weight:: 0.1,  // lambda
    batch_size:: 32,
    num_epochs:: 40,
    learning_rate:: of.learning_rate,
    // The public code updates the networks of iVAE five times a step, at 1e-5.
    dual_learning_rate:: 5e-5,
    local settings = self,
    local batches = std.ceil(self.instances / self.batch_size),
    local words = {
        token_embedders: { tokens: { type: "embedding", embedding_dim: settings.word_size } },
    },
    local implicit = self.posterior.type == "implicit",
    local contrastive = self.contrast != null,

    vocabulary: {
        type: "from_instances",
        max_vocab_size: { tokens: settings.vocabulary_size },
        oov_token: of.unknown,
    },
    dataset_reader: {
        type: "text_lines",
        labelled: of.labelled,
        max_tokens: if "max_tokens" in of then of.max_tokens,
        longer: "leave_out",
        with_ids: contrastive,
    },
    vae:: {
        type: "text_vae",
        text_field_embedder: words,
        decoder_embedder: words,
        seq2vec_encoder: {
            type: "lstm",
            input_size: settings.word_size,
            hidden_size: settings.state_size,
        },
        posterior: settings.posterior,
        latent_size: settings.latent_size,
        decoder_size: settings.state_size,
        dropout: 0.5,
        initial_kl_weight: 0.1,
        kl_weight: settings.kl_weight,
        annealing_steps: std.round((settings.kl_weight - 0.1) * settings.warmup_epochs * batches),
        cycle_steps: if settings.cycle_epochs != null
                     then std.round(settings.cycle_epochs * batches),
        initializer: {
            regexes: [[".*", { type: "uniform", a: -of.first, b: of.first }]],
            prevent_regexes: ["_dual"],
        },
    },
    model: if !contrastive then settings.vae else {
        type: "reclaim",
        weight: settings.weight,
        u: "latent",
        v: "word_embeddings",
        objective: {
            type: "reclaim",
            instances: settings.instances,
            candidates: settings.contrast,
            // Vanilla CL: all others of the batch, and a critic without the Lipschitz constraint.
            num_negatives: if settings.contrast == "batch" then null else 100,
            lipschitz: settings.contrast != "batch",
        },
        model: settings.vae,
    },
    data_loader: { batch_size: settings.batch_size, shuffle: true },
    validation_data_loader: self.data_loader { shuffle: false },
    trainer+: {
        optimizer: {
            type: "adam",
            lr: settings.learning_rate,
            parameter_groups: if implicit then [[["_dual"], { lr: settings.dual_learning_rate }]],
        },
        grad_norm: 5.0,
        learning_rate_scheduler: null,
        validation_metric: "-negative_elbo",
    },
}
