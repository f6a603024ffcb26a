"""Results as Markdown, JSON and pictures, and the comparison of several."""

from declutr.earlier_paths import names_of

__getattr__ = names_of("declutr.evaluation.report.report")  # it was a module, up to release 1.8
