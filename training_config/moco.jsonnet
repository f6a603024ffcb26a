// Moved to sentences/moco.jsonnet; this path goes in 3.0.
import "sentences/moco.jsonnet"
