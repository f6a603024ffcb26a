// What the recipes of static encoders share: a table of token vectors in place of a transformer.
//
//   TRANSFORMER_MODEL   a folder of `declutr static-vectors`, of sentence-transformers
//                       (StaticEmbedding) or of model2vec. Without it, `declutr train` makes a table
//                       of the training texts first.
//
// Import it on top of another recipe: (import "../base.libsonnet") + (import "static.libsonnet").
{
    default_transformer:: "static-tables/first",  // the table that is made of the training texts
    masked_language_modeling:: false,
    token_dropout:: 0.0,
    learning_rate:: 1e-2,  // of a table: a token is in few texts, and its vector moves in few steps
    sparse:: false,  // true is faster for tables of more than about 60,000 tokens, in one process
    local dense = (import "../optimizers.libsonnet").static,
    optimizer:: if settings.sparse then dense { optimizer: { type: "dense_sparse_adam" } } else dense,
    pooler:: null,  // the mean
    dimensions:: [],  // such as [128, 64, 32]: embeddings can be cut to them after training
    local settings = self,

    model+: {
        text_field_embedder: {
            type: "token_embedding_bag",
            model_name: settings.transformer_model,
            token_dropout: settings.token_dropout,
            sparse: settings.sparse,
        },
        local wrapped = super.loss,
        loss: if settings.dimensions == [] then wrapped else {
            type: "matryoshka",
            loss: wrapped,
            dimensions: settings.dimensions,
        },
    },
    trainer+: {
        grad_norm: null,
        // Writing weights and moments takes as long as many steps: every 1,000 steps, not every epoch.
        checkpointer+: { save_completed_epochs: false },
    },
} + (import "../unused.libsonnet")(["masked_language_modeling"])
