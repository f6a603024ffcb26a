"""RECLAIM as a term beside the loss of any model."""
