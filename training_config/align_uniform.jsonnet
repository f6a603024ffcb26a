// Moved to sentences/align_uniform.jsonnet; this path goes in 3.0.
import "sentences/align_uniform.jsonnet"
