// I have: rows of a task of GLUE, with their classes
// I want: vanilla contrastive learning with the negatives of the batch
// Table 5, "In-batch", which the paper calls vanilla contrastive learning: without spectral
// normalisation. All other instances of the batch are negatives; banks are kept but not searched.
(import "../reclaim.libsonnet") {
    num_negatives:: self.batch_size - 1,
    model+: { objective+: { candidates: "batch", lipschitz: false } },
}
