// Moved to sentences/reclaim_levels.jsonnet; this path goes in 3.0.
import "sentences/reclaim_levels.jsonnet"
