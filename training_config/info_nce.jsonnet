// Moved to sentences/info_nce.jsonnet; this path goes in 3.0.
import "sentences/info_nce.jsonnet"
