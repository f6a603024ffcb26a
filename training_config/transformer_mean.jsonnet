// Moved to untrained/transformer_mean.jsonnet; this path goes in 3.0.
import "untrained/transformer_mean.jsonnet"
