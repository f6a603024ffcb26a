// I have: sentences, one a line
// I want: two augmentations of each, and masked language modelling (CLEAR)
// CLEAR (Wu et al., 2020), its combination of substitution and span deletion: in each of the two views
// of a text 30 % of the words become synonyms, and five spans of 5 % are deleted, drawn anew every
// epoch. For the paper's others, put "span_reordering" into the chain, or edits of "eda" (deletion 0.7
// is its word deletion). The paper trains from scratch on documents; this adapts a transformer.
// Synonyms are WordNet's, by nltk, or those of a file, or what a language model predicts (slow):
//   -o '{"dataset_reader.augmentation.augmentations.0.synonyms": "synonyms.tsv"}'
//   -o '{"dataset_reader.augmentation.augmentations.0":
//        {"type": "masked_lm", "transformer": "distilroberta-base", "share": 0.3}}'
// Optimizer: no public code; here, the defaults of the Trainer.
(import "sentences.libsonnet") {
    temperature:: 0.1,
    max_length:: 64,
    masked_language_modeling:: true,
    views:: "spans",  // of the reader: anchors and positives

    dataset_reader+: {
        type: "augmented",
        both: true,
        augmentation: {
            type: "chain",
            augmentations: [
                { type: "eda", replacement: 0.3, insertion: 0, swap: 0, deletion: 0 },
                { type: "span_deletion", spans: 5, share: 0.05 },
            ],
        },
    },
    model+: {
        head: { type: "projector", hidden_dims: [768, 768], batch_norm: false },
        mask_contrastive_anchor: false,  // masks are for the other term, in a pass of its own
    },
}
