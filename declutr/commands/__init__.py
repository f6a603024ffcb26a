"""The subcommands this package adds to `allennlp`."""
