"""The AllenNLP Models "declutr" and "reclaim", their views, training steps and Predictors."""
