// Moved to sentences/sentences.libsonnet; this path goes in 3.0.
import "sentences/sentences.libsonnet"
