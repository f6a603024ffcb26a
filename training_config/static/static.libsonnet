// What the recipes of static encoders share: a table of token vectors in place of a transformer.
//
//   TRANSFORMER_MODEL   a folder of `declutr static-vectors`, of sentence-transformers
//                       (StaticEmbedding) or of model2vec.
//
// Import it on top of another recipe: (import "../base.libsonnet") + (import "static.libsonnet").
{
    masked_language_modeling:: false,
    token_dropout:: 0.0,
    learning_rate:: 1e-2,  // of a table: a token is in few texts, and its vector moves in few steps
    optimizer:: (import "../optimizers.libsonnet").static,
    pooler:: null,  // the mean
    dimensions:: [],  // such as [128, 64, 32]: embeddings can be cut to them after training
    local settings = self,

    model+: {
        text_field_embedder: {
            type: "token_embedding_bag",
            model_name: settings.transformer_model,
            token_dropout: settings.token_dropout,
        },
        loss: if settings.dimensions == [] then super.loss else {
            type: "matryoshka",
            loss: super.loss,
            dimensions: settings.dimensions,
        },
    },
    trainer+: { grad_norm: null },
}
