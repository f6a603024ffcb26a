// Moved to reclaim/reclaim.libsonnet; this path goes in 3.0.
import "reclaim/reclaim.libsonnet"
