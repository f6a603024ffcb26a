// Moved to reclaim/reclaim_large_bank.jsonnet; this path goes in 3.0.
import "reclaim/reclaim_large_bank.jsonnet"
