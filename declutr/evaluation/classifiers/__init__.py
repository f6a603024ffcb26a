"""Classifiers and regressors that are trained on sentence embeddings."""

from declutr.earlier_paths import names_of

__getattr__ = names_of(__name__)  # this package was a module up to release 1.8
