// Moved to labelled/simcse_supervised.jsonnet; this path goes in 3.0.
import "labelled/simcse_supervised.jsonnet"
