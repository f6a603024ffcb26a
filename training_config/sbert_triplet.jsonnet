// Moved to labelled/sbert_triplet.jsonnet; this path goes in 3.0.
import "labelled/sbert_triplet.jsonnet"
