// I have: rows of a task of GLUE, with their classes
// I want: a classifier by edited texts as well (EDA)
// EDA (Wei & Zou, 2019) as it was published, for a classifier: a transformer is fine-tuned on texts
// whose words are edited anew in every epoch, most useful with few labels (label_fraction). Validation
// and prediction are on the texts as they are. Tasks and files are those of reclaim.jsonnet:
//   -o '{"train_data_path": "SST-2/train.tsv", "validation_data_path": "SST-2/dev.tsv"}'
// Synonyms are WordNet's, by nltk, or those of a file:
//   -o '{"dataset_reader.augmentation.synonyms": "synonyms.tsv"}'
(import "../reclaim/reclaim_task_alone.jsonnet") {
    local settings = self,

    dataset_reader+: {
        augmentation: { type: "eda", replacement: 0.1, insertion: 0.1, swap: 0.1, deletion: 0.1 },
        seed: settings.seed,
    },
    // It reads the rows of an epoch anew, in workers.
    data_loader: super.data_loader { type: "declutr", num_workers: 1, seed: settings.seed },
}
