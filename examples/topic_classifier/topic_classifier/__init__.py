"""A plugin of AllenNLP: what it registers is all it has."""

from topic_classifier.tab_separated_reader import TabSeparatedReader

__all__ = ["TabSeparatedReader"]
