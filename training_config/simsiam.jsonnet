// Moved to sentences/simsiam.jsonnet; this path goes in 3.0.
import "sentences/simsiam.jsonnet"
