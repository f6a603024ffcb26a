"""What happens around training steps: resuming, checkpoints, records, evaluation."""
