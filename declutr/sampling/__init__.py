"""Which tokens of a document are drawn or masked: numpy and torch only."""

from declutr.earlier_paths import names_of

__getattr__ = names_of("declutr.sampling.spans")  # it was a module, up to release 1.8
