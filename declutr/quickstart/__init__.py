"""The whole way, on text that every machine has."""
