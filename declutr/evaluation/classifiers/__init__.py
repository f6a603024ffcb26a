"""What is trained on embeddings to see what they tell."""

from declutr.earlier_paths import names_of

__getattr__ = names_of(
    "declutr.evaluation.classifiers.classifiers"
)  # it was a module, up to release 1.8
