"""Subcommands that this package adds to `allennlp`."""
