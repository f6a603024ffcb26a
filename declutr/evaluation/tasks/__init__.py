"""The tasks that sentence embeddings are evaluated on, and their data sets."""
