"""Where rows of data come from, which of them are used, and the views that are made of them.

A `RowSource` has rows and says which of them are used; a `RowViews` makes of a row what a batch
holds of it. A reader (`declutr.data.row_reader`) has views for training, and whole texts besides.
"""
