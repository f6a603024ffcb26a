// Moved to sentences/scd.jsonnet; this path goes in 3.0.
import "sentences/scd.jsonnet"
