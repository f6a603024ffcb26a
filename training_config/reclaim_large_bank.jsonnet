// For hundreds of thousands of instances: banks lie in files that the system maps into main memory,
// half as wide, and are searched by faiss (pip install faiss-cpu) from 10,000 filled slots on: exact
// search would move whole banks to a GPU in every step.
(import "reclaim.libsonnet") {
    task:: "mnli",
    model+: {
        objective+: {
            storage: "disk",
            precision: "float16",
            search: "approximate",
            approximate_from: 10000,
        },
    },
}
