// Moved to reclaim/reclaim_fraction.jsonnet; this path goes in 3.0.
import "reclaim/reclaim_fraction.jsonnet"
