// Moved to sentences/weighted_sum.jsonnet; this path goes in 3.0.
import "sentences/weighted_sum.jsonnet"
