// I have: rows of a task of GLUE, with their classes
// I want: a classifier with RECLAIM, of hundreds of thousands of rows
// Banks are half as wide. A GPU holds them and finds the nearest slots exactly, in milliseconds; a CPU
// looks into lists of faiss (pip install faiss-cpu) from 10,000 filled slots on. storage:: "disk" maps banks into main memory from files, for where they fit in
// neither; a GPU then waits for what is found in them in every step.
(import "reclaim.libsonnet") {
    task:: "mnli",
    storage:: "memory",
    local settings = self,
    model+: {
        objective+: {
            storage: settings.storage,
            precision: "float16",
            search: "approximate",
            approximate_from: 10000,
        },
    },
}
