// Moved to sentences/cutoff.jsonnet; this path goes in 3.0.
import "sentences/cutoff.jsonnet"
