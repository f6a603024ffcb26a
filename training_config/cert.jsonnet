// CERT (Fang et al., 2020): MoCo between two augmentations of a text, back-translations in the paper.
// train_data_path: JSON lines (or TSV, CSV with a header) with "text" and "augmented", made beforehand.
// For a function of your own in place of such a file, see the reader "augmented".
(import "moco.jsonnet") {
    views:: "spans",  // of the reader: anchors and positives
    dataset_reader+: { type: "text_pairs", anchor: "text", positive: "augmented" },
}
