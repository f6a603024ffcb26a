"""AllenNLP modules between token ids and embeddings: embedders, poolers, heads, metrics."""
