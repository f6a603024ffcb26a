// Moved to sentences/scd_decorrelation.jsonnet; this path goes in 3.0.
import "sentences/scd_decorrelation.jsonnet"
