// Moved to reclaim/reclaim_text_vae.jsonnet; this path goes in 3.0.
import "reclaim/reclaim_text_vae.jsonnet"
