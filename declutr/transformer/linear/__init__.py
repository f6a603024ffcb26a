"""Linear layers on a CPU: for training, and prepared once for inference."""
