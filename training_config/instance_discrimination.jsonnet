// Moved to sentences/instance_discrimination.jsonnet; this path goes in 3.0.
import "sentences/instance_discrimination.jsonnet"
