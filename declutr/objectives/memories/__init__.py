"""Objectives whose negatives come from earlier steps, by way of a queue or a memory bank."""
