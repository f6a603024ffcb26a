// Moved to reclaim/ablations/random_bank.jsonnet; this path goes in 3.0.
import "../reclaim/ablations/random_bank.jsonnet"
