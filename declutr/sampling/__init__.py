"""Sampling of documents, spans and masked tokens, with numpy and torch only."""

from declutr.earlier_paths import names_of

# Up to release 1.8 this was a module; the names that it had can still be imported from here.
__getattr__ = names_of(
    "declutr.sampling.spans", "declutr.sampling.row_draws", "declutr.sampling.span_geometry"
)
