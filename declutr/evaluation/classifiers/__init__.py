"""Classifiers and regressors that are trained on sentence embeddings."""

from declutr.earlier_paths import names_of

__getattr__ = names_of(
    "declutr.evaluation.classifiers.classifiers"
)  # this package was a single module up to release 1.8
