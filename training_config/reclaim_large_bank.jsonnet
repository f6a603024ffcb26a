// For hundreds of thousands of instances: banks lie in files that the system maps into main memory,
// half as wide, and are searched by faiss (pip install faiss-cpu) from 200,000 slots on.
(import "reclaim.libsonnet") {
    task:: "mnli",
    model+: {
        objective+: { storage: "disk", precision: "float16", search: "approximate" },
    },
}
