// What is known of the tasks of GLUE, and their baseline: the public fine-tuning code's classifier.
{
    // Rows of training files, the larger number where there are several versions.
    rows: {
        "cola": 8551,
        "sst-2": 67349,
        "mrpc": 4076,
        "qqp": 363870,
        "sts-b": 5749,
        "mnli": 392702,
        "qnli": 108436,
        "rte": 2490,
        "wnli": 635,
    },

    // What early stopping and the best weights go by: GLUE's own metric, of two their mean.
    metrics: {
        "cola": "+matthews",
        "mrpc": ["+accuracy", "+f1"],
        "qqp": ["+accuracy", "+f1"],
        "sts-b": ["+pearson", "+spearman"],
        "sick-r": ["+pearson", "+spearman"],
    },
    metric_of(task):: if std.objectHas(self.metrics, task) then self.metrics[task] else "+accuracy",

    // The vector of the first token, linear and tanh (pretrained in BERT, new in RoBERTa), dropout
    // and a linear layer, drawn as in transformers.
    model(task, transformer_model):: {
        type: "glue",
        task: task,
        namespace: "tags",  // of the indexer: `allennlp predict` looks tokens up there
        text_field_embedder: {
            token_embedders: {
                tokens: {
                    type: "pretrained_transformer_mlm",
                    model_name: transformer_model,
                    masked_language_modeling: false,
                },
            },
        },
        seq2vec_encoder: { type: "classification_pooler", model_name: transformer_model },
        dropout: 0.1,
        initializer: {
            regexes: [
                ["_classification_layer.weight", { type: "normal", mean: 0, std: 0.02 }],
                ["_classification_layer.bias", { type: "zero" }],
            ],
        },
    },
}
