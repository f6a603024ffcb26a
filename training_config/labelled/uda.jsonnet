// I have: few texts with classes, and many without
// I want: a classifier that also learns from texts without classes (UDA)
// Unsupervised data augmentation (Xie et al., 2020): predictions for a text and for its augmentation
// are to be the same, here over three unlabelled texts beside each labelled one. The rows are of a
// task of GLUE; unlabelled are those without a label, and those that label_fraction leaves out.
// Settings are the public code's for BERT-base on one GPU (run_base_uda.sh); for BERT-large it has
// 512 tokens, batches of 32, 7 unlabelled texts and temperature 0.85. It augments by back-translation,
// for which `augmentation` takes a function of yours: { type: "callable", function: "module:name" }.
// EDA's synonyms are WordNet's, by nltk, or those of a file:
//   -o '{"dataset_reader.augmentation.synonyms": "synonyms.tsv"}'
(import "../reclaim/reclaim_task_alone.jsonnet") {
    default_transformer:: "bert-base-uncased",
    label_fraction:: 0.01,
    unlabelled:: 3,  // beside each labelled text
    batch_size:: 8,  // labelled texts
    num_epochs:: 4,  // through the unlabelled texts; of SST-2 10,000 steps, the public code's, are 3.6
    optimizer:: (import "../optimizers.libsonnet").sentence_bert,  // as BERT's own, warm-up of 0.1
    local settings = self,

    dataset_reader+: {
        type: "semi_supervised",
        unlabelled: settings.unlabelled,
        augmentation: { type: "eda", replacement: 0.1, insertion: 0.1, swap: 0.1, deletion: 0.1 },
        seed: settings.seed,
    },
    model: {
        type: "consistency",
        model: settings.task_model,
        view_weight: 0.0,  // the cross entropy is of labelled texts alone
        divergence: "kl",
        divergence_weight: 1.0,  // lambda
        annealing: "linear",
    },
}
