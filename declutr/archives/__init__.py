"""What a trained model is on disk and carries, and opening one that is not trusted (`safety`)."""

from declutr.earlier_paths import names_of

__getattr__ = names_of("declutr.archives.carried")  # it was a module, up to release 1.8
