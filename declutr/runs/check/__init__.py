"""The check of a recipe before training: settings, keys, data, memory and advice."""
