"""Ways to make the first table of a static encoder, before any training.

A static encoder embeds a text as the mean of the vectors of its tokens. `tokenizers` trains its
vocabulary, `cooccurrence`, `word_tables` and `distillation` make the first vectors, and `weighting`
changes the vectors of a table. `declutr.archives.static_folder` reads and writes the files.
"""
