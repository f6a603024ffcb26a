// Moved to labelled/sbert_regression.jsonnet; this path goes in 3.0.
import "labelled/sbert_regression.jsonnet"
