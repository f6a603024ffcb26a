// Moved to reclaim/reclaim_image_text.jsonnet; this path goes in 3.0.
import "reclaim/reclaim_image_text.jsonnet"
