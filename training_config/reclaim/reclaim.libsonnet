// What the recipes of RECLAIM share: a transformer is fine-tuned on a task of GLUE, with a
// contrastive term beside the task's loss. docs/RECLAIM.md explains it.
//
//   TRANSFORMER_MODEL   a name on the Hugging Face hub, or a folder: an environment variable.
//   -o '{"train_data_path": "SST-2/train.tsv", "validation_data_path": "SST-2/dev.tsv"}'
//
// Another task is a recipe of one line: (import "training_config/reclaim/reclaim.jsonnet") { task:: "mrpc" }

local glue = import "glue.libsonnet";

local not_of_tasks = [
    "num_anchors",
    "num_positives",
    "max_span_len",
    "min_span_len",
    "temperature",
    "masked_language_modeling",
];

(import "../base.libsonnet") + (import "../unused.libsonnet")(not_of_tasks) {
    default_transformer:: "bert-base-uncased",  // of the paper's tables
    task:: "sst-2",  // of the reader "glue"
    // All rows of the training file, those that label_fraction leaves out too. More do no harm, but
    // each takes two vectors of memory.
    instances:: if std.objectHas(glue.rows, self.task) then glue.rows[self.task]
                else error "Set instances:: to the rows of train_data_path: '%s' is not of GLUE."
                           % self.task,
    label_fraction:: null,  // 0.1 trains with 10 % of the labels
    max_length:: 128,  // tokens of a text, or of both of a pair
    weight:: 0.1,  // lambda
    num_negatives:: 100,  // K
    batch_size:: 32,
    num_epochs:: 3,
    learning_rate:: 2e-5,
    // Section 5.1: "the default setup" of transformers, whose fine-tuning code for GLUE has no decay and
    // no warm-up. Batch, rate and epochs are those of appendix C.
    optimizer:: (import "../optimizers.libsonnet").trainer,
    local settings = self,
    local of_spans = super.dataset_reader,

    local reader = {
        type: "glue",
        task: settings.task,
        tokenizer: of_spans.tokenizer { max_length: settings.max_length },
        token_indexers: of_spans.token_indexers,
    },

    vocabulary: { type: "from_instances" },  // of classes
    dataset_reader: reader { with_ids: true, label_fraction: settings.label_fraction },
    // It reads all rows, and gives no ids, which the bare task model would not take.
    validation_dataset_reader: reader { with_metadata: true },  // MNLI's parts, rows of test files

    task_model:: glue.model(settings.task, settings.transformer_model),
    model: {
        type: "reclaim",
        model: settings.task_model,
        weight: settings.weight,
        objective: {
            type: "reclaim",
            instances: settings.instances,
            num_negatives: settings.num_negatives,
        },
    },

    data_loader: { batch_size: settings.batch_size, shuffle: true },
    validation_data_loader: self.data_loader { shuffle: false },
    trainer+: { validation_metric: glue.metric_of(settings.task) },
}
