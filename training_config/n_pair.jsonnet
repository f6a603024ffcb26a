// Moved to sentences/n_pair.jsonnet; this path goes in 3.0.
import "sentences/n_pair.jsonnet"
