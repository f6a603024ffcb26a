// Moved to labelled/sbert.libsonnet; this path goes in 3.0.
import "labelled/sbert.libsonnet"
