"""What a trained model is on disk and carries, and opening one that is not trusted (`safety`)."""
