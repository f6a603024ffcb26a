// Moved to sentences/is_bert.jsonnet; this path goes in 3.0.
import "sentences/is_bert.jsonnet"
