// Moved to sentences/simcse_mlm.jsonnet; this path goes in 3.0.
import "sentences/simcse_mlm.jsonnet"
