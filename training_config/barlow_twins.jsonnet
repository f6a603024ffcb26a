// Moved to sentences/barlow_twins.jsonnet; this path goes in 3.0.
import "sentences/barlow_twins.jsonnet"
