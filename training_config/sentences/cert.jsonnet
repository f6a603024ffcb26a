// I have: texts, each with an augmentation such as a back-translation
// I want: an encoder by these pairs (CERT)
// CERT (Fang et al., 2020): MoCo between two augmentations of a text, back-translations in the paper.
// train_data_path: JSON lines (or TSV, CSV with a header) with "text" and "augmented", made beforehand.
// For a function of your own in place of such a file, see the reader "augmented".
// The queue and the width of keys are those of `moco` here; CERT's public code has 128 numbers a key, a
// queue of as many keys as it has texts, and the pooler of BERT-large before the projector.
// Optimizer: CERT's public code, MOCO.py, and so are batch, length, rate and epochs; it clips no
// gradients. It counts epochs from 1, so that its cosine is an epoch ahead and its last epoch has a rate
// of 0, which trains nothing; here the first one has the whole rate, as in MoCo's code. The cosine goes
// over all epochs: change their number here (num_epochs::), or with -o the scheduler's t_initial as well.
(import "moco.jsonnet") {
    batch_size:: 32,
    max_length:: 64,
    learning_rate:: 4e-5,
    num_epochs:: 50,
    optimizer:: (import "../optimizers.libsonnet").cert(self.num_epochs),
    views:: "spans",  // of the reader: anchors and positives
    dataset_reader+: { type: "text_pairs", anchor: "text", positive: "augmented" },
    trainer+: { grad_norm: false },
}
