// Moved to sentences/lifted_structured.jsonnet; this path goes in 3.0.
import "sentences/lifted_structured.jsonnet"
