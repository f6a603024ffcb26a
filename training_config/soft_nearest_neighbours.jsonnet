// Moved to sentences/soft_nearest_neighbours.jsonnet; this path goes in 3.0.
import "sentences/soft_nearest_neighbours.jsonnet"
