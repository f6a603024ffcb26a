// Moved to with_evaluation/scd_selected.jsonnet; this path goes in 3.0.
import "with_evaluation/scd_selected.jsonnet"
