"""Results as Markdown, JSON and pictures, and the comparison of several."""
