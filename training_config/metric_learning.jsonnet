// Moved to sentences/metric_learning.jsonnet; this path goes in 3.0.
import "sentences/metric_learning.jsonnet"
