// I have: sentences, one a line
// I want: two encoders whose dot products tell the same sentence from others (Contrastive Tension)
// Contrastive Tension (Carlsson et al., 2021): two encoders, equal at first, embed the two sentences
// of a pair; one pair in eight is of the same sentence. 30 sentences make 16 pairs, so 1.5 million
// make the paper's 50,000 steps. Without dropout, as in the public code, which keeps the encoder that
// is the better one on development data; here the first embeds.
// Optimizer: the public code: TensorFlow's RMSprop, and its rates by steps.
local negatives = 7;  // pairs of two sentences for each pair of one

(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    batch_size:: 2 * (2 * negatives + 1),
    learning_rate:: 1e-5,
    max_length:: 75,
    optimizer:: (import "../optimizers.libsonnet").contrastive_tension,
    pooler:: null,  // the mean
    views:: { type: "tension", negatives: negatives, dropout: 0.0 },
    model+: {
        two_encoders: true,
        embed_with_first: true,
        loss: { type: "contrastive_tension", negatives: negatives },
    },
    trainer+: { grad_norm: false },
}
