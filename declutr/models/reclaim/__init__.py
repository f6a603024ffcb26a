"""RECLAIM as a contrastive term that is added to the loss of any AllenNLP model."""
