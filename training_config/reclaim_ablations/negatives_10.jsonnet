// Moved to reclaim/ablations/negatives_10.jsonnet; this path goes in 3.0.
import "../reclaim/ablations/negatives_10.jsonnet"
