// I have: sentences, one a line
// I want: a loss or miner of pytorch-metric-learning
// A loss of pytorch-metric-learning by name, with its distance, reducer and miner: multi-similarity
// (Wang et al., 2019) over two dropout passes. Others are a change of names away.
// Optimizer: no public code trains it on sentences: the defaults of the Trainer.
local cosine = { class: "CosineSimilarity" };

(import "sentences.libsonnet") + (import "../unused.libsonnet")(["temperature"]) {
    model+: {
        loss: {
            type: "pytorch_metric_learning",
            loss: "MultiSimilarityLoss",
            loss_args: {
                alpha: 2,
                beta: 50,
                base: 0.5,
                distance: cosine,
                reducer: { class: "MeanReducer" },
            },
        },
        miner: {
            type: "pytorch_metric_learning",
            miner: "MultiSimilarityMiner",
            miner_args: { epsilon: 0.1, distance: cosine },
        },
    },
}
