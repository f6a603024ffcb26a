"""The AllenNLP Models, and what they make of a batch."""
