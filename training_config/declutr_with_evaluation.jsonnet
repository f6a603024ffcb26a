// Moved to with_evaluation/declutr_with_evaluation.jsonnet; this path goes in 3.0.
import "with_evaluation/declutr_with_evaluation.jsonnet"
