// Moved to sentences/contrastive.jsonnet; this path goes in 3.0.
import "sentences/contrastive.jsonnet"
