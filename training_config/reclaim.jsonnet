// Moved to reclaim/reclaim.jsonnet; this path goes in 3.0.
import "reclaim/reclaim.jsonnet"
