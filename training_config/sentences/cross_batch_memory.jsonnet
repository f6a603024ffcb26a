// I have: sentences, one a line
// I want: a small batch and many negatives, without a second encoder
// Cross-batch memory (Wang et al., 2020): NT-Xent over two dropout passes, with the projections of
// earlier batches as negatives. They were made by an encoder of a few steps ago, without another
// one that follows slowly, as MoCo's is.
// Optimizer: the public code is for images; on sentences, the defaults of the Trainer.
local width = 256;  // of projections, and so of the memory

(import "sentences.libsonnet") {
    local settings = self,

    model+: {
        head: { type: "projector", hidden_dims: [width] },
        loss: {
            type: "cross_batch_memory",
            embedding_size: width,
            memory_size: 4096,  // rows; a batch brings two a sentence
            loss: { type: "nt_xent", temperature: settings.temperature },
        },
    },
}
