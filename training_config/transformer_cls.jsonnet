// Moved to untrained/transformer_cls.jsonnet; this path goes in 3.0.
import "untrained/transformer_cls.jsonnet"
