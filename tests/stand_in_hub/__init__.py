"""A stand-in for the model hub: tiny checkpoints with random weights under the names of real ones.

    python -m tests.stand_in_hub hub_home
    HF_HOME=hub_home HF_HUB_OFFLINE=1 python -m pytest ...

The folder is laid out as the cache of huggingface_hub, so that every library that asks for
"bert-base-uncased" finds it, offline. Vocabularies are made of words, with the special tokens and
their ids as in the real ones; a checkpoint has as many layers as the real one only where AllenNLP's
tests count on it.
"""

from tests.stand_in_hub.cache import NAMES, make_hub
from tests.stand_in_hub.spacy_model import make_spacy_model
from tests.stand_in_hub.words import words_of

__all__ = ["NAMES", "make_hub", "make_spacy_model", "words_of"]
