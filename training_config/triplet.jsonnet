// Moved to sentences/triplet.jsonnet; this path goes in 3.0.
import "sentences/triplet.jsonnet"
