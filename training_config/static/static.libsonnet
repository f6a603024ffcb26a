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
    optimizer:: (import "../optimizers.libsonnet").static,
    local settings = self,

    model+: {
        text_field_embedder: {
            type: "token_embedding_bag",
            model_name: settings.transformer_model,
            token_dropout: settings.token_dropout,
        },
    },
    trainer+: { grad_norm: null },
}
