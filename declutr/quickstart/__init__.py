"""The quickstart: corpus, training and embeddings on text that every machine has."""

from declutr.earlier_paths import names_of

__getattr__ = names_of("declutr.quickstart.whole_way")  # Names of a module up to release 1.8.
