"""How good embeddings are, for any callable `list[str] -> (n, d)` array. Knows no model."""
