"""What embeddings are tried on."""
