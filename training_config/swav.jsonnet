// Moved to sentences/swav.jsonnet; this path goes in 3.0.
import "sentences/swav.jsonnet"
