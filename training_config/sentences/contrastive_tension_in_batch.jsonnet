// I have: sentences, one a line
// I want: Contrastive Tension with the other sentences of the batch as negatives
// The variant of sentence-transformers: InfoNCE in both directions between two encoders, at a learnt
// temperature that begins at 1/20.
// Optimizer: no public code of the paper: the defaults of the Trainer.
(import "clip.jsonnet") {
    pooler:: null,  // the mean
    temperature:: 0.05,
    model+: { two_encoders: true, embed_with_first: true },
}
