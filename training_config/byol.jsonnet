// Moved to sentences/byol.jsonnet; this path goes in 3.0.
import "sentences/byol.jsonnet"
