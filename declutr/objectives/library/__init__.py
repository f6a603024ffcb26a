"""Losses and miners of pytorch-metric-learning as objectives."""
