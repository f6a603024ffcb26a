// Moved to reclaim/ablations/random_bank_lipschitz.jsonnet; this path goes in 3.0.
import "../reclaim/ablations/random_bank_lipschitz.jsonnet"
