// Moved to sentences/neighbours.jsonnet; this path goes in 3.0.
import "sentences/neighbours.jsonnet"
