"""The trainer and what surrounds it: resuming, checkpoints, records, sharding, evaluation."""
