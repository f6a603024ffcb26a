"""Files of any format as rows, sentences, and token ids on disk: no AllenNLP."""

from declutr.earlier_paths import names_of

__getattr__ = names_of("declutr.corpus.tokenized")  # it was a module, up to release 1.8
