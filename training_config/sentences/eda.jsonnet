// I have: sentences, one a line
// I want: a second view by word edits (EDA)
// EDA (Wei & Zou, 2019) as the second view: a text beside its own word edits, drawn anew every epoch.
// Synonyms are WordNet's, by nltk, or those of a file:
//   -o '{"dataset_reader.augmentation.synonyms": "synonyms.tsv"}'
// Optimizer: EDA's public code trains classifiers; here, the defaults of the Trainer.
(import "sentences.libsonnet") {
    views:: "spans",  // of the reader: anchors and positives
    dataset_reader+: {
        type: "augmented",
        augmentation: { type: "eda", replacement: 0.1, insertion: 0.1, swap: 0.1, deletion: 0.1 },
    },
}
