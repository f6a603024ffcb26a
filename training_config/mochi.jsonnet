// Moved to sentences/mochi.jsonnet; this path goes in 3.0.
import "sentences/mochi.jsonnet"
