// Moved to sentences/cert.jsonnet; this path goes in 3.0.
import "sentences/cert.jsonnet"
