// Moved to sentences/debiased.jsonnet; this path goes in 3.0.
import "sentences/debiased.jsonnet"
