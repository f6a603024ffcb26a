"""From texts to embeddings: open a model, cut, batch, embed, whiten."""
