// Moved to sentences/simcse.jsonnet; this path goes in 3.0.
import "sentences/simcse.jsonnet"
