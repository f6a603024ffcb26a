"""AllenNLP modules from token ids to embeddings and projections: embedders, a pooler, heads."""
