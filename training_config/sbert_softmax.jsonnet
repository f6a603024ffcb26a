// Moved to labelled/sbert_softmax.jsonnet; this path goes in 3.0.
import "labelled/sbert_softmax.jsonnet"
