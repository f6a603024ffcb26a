// Moved to reclaim/ablations/weight_1.jsonnet; this path goes in 3.0.
import "../reclaim/ablations/weight_1.jsonnet"
