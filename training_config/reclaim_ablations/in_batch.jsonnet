// Moved to reclaim/ablations/in_batch.jsonnet; this path goes in 3.0.
import "../reclaim/ablations/in_batch.jsonnet"
