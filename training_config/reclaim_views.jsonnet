// Moved to sentences/reclaim_views.jsonnet; this path goes in 3.0.
import "sentences/reclaim_views.jsonnet"
