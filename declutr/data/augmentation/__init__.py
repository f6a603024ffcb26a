"""Ways to change the words of a text without changing what it says."""
