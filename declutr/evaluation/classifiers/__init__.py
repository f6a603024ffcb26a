"""What is trained on embeddings to see what they tell."""
