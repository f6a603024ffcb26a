// I have: rows of a task of GLUE, with their classes
// I want: a classifier that predicts the same when parts of its input are cut (Cutoff)
// Cutoff (Shen et al., 2020): cross entropy of each text and of a cut of it, and the Jensen-Shannon
// divergence of both predictions. Kinds: token, span, feature. Settings are the public code's for GLUE
// (alpha = beta = 1, 10 % cut); its token cutoff leaves the cross entropy of whole texts out.
// Another task is a recipe of one line: (import "training_config/labelled/cutoff_classifier.jsonnet") { task:: "mrpc" }
(import "../reclaim/reclaim_task_alone.jsonnet") {
    default_transformer:: "roberta-base",
    kind:: "span",
    batch_size:: 8,
    num_epochs:: 10,
    learning_rate:: 5e-6,
    optimizer:: (import "../optimizers.libsonnet").sentence_bert {
        optimizer+: { betas: [0.9, 0.98], correct_bias: true, weight_decay: 0.1 },
        learning_rate_scheduler+: { warmup_share: 0.06 },
    },
    local settings = self,

    task_model+:: { text_field_embedder+: { type: "mlm" } },  // whose input can be cut
    model: {
        type: "consistency",
        model: settings.task_model,
        views: { type: "cutoff", kind: settings.kind, rate: 0.1 },
        view_weight: 1.0,  // alpha
        divergence_weight: 1.0,  // beta
    },
    trainer+: { grad_norm: null },
}
