// I have: documents of at least 2,048 tokens, one a line
// I want: DeCLUTR with a memory bank (figure S1b of its first version)
// DeCLUTR as in its first version (arXiv, June 2020), with the cross-batch memory of its section 6.2:
// the embeddings of the 512 last spans (the figure's queues have up to 512) are negatives as well,
// without a projection head. A step brings 64: 32 anchors, and the means of their positives. Every
// queue was worse than none there; its temperatures were 0.001 to 0.05.
(import "declutr.jsonnet") {
    embedding_size:: 768,  // of TRANSFORMER_MODEL
    queue_size:: 512,
    local settings = self,

    dataset_reader+: { placement: "uniform_v1" },
    model+: {
        loss: {
            type: "cross_batch_memory",
            embedding_size: settings.embedding_size,
            memory_size: settings.queue_size,
            loss: { type: "nt_xent", temperature: settings.temperature },
        },
    },
}
