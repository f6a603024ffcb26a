// Moved to reclaim/reclaim_task_alone.jsonnet; this path goes in 3.0.
import "reclaim/reclaim_task_alone.jsonnet"
