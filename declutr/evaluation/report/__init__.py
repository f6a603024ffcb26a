"""The report of an evaluation: a comparison of encoders as Markdown, JSON and pictures."""

from declutr.earlier_paths import names_of

__getattr__ = names_of("declutr.evaluation.report.report")  # a single module up to release 1.8
