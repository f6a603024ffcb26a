// Moved to sentences/cross_batch_memory.jsonnet; this path goes in 3.0.
import "sentences/cross_batch_memory.jsonnet"
