// Moved to sentences/scd_roberta.jsonnet; this path goes in 3.0.
import "sentences/scd_roberta.jsonnet"
