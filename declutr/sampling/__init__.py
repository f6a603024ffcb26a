"""Which tokens of a document are drawn or masked: numpy and torch only."""

from declutr.earlier_paths import names_of

# It was a module, up to release 1.8.
__getattr__ = names_of(
    "declutr.sampling.spans", "declutr.sampling.row_draws", "declutr.sampling.span_geometry"
)
