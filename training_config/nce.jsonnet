// Moved to sentences/nce.jsonnet; this path goes in 3.0.
import "sentences/nce.jsonnet"
