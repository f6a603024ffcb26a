// Moved to sentences/quick_thoughts.jsonnet; this path goes in 3.0.
import "sentences/quick_thoughts.jsonnet"
