// Moved to reclaim/ablations/no_lipschitz.jsonnet; this path goes in 3.0.
import "../reclaim/ablations/no_lipschitz.jsonnet"
