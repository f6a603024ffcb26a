// Moved to sentences/hard_negative.jsonnet; this path goes in 3.0.
import "sentences/hard_negative.jsonnet"
