// Moved to sentences/eda.jsonnet; this path goes in 3.0.
import "sentences/eda.jsonnet"
