"""Layer normalisations that hand on bfloat16, in a model whose linear layers compute in it.

Otherwise a model under autocast adds the outputs of its linear layers, in bfloat16, to hidden
states in float32, normalises those, and rounds them for the next linear layer: four passes over
tensors that are twice as large.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import LayerNorm, Module

_LARGEST_LOSS = 2.0
"""The most by which the difference to float32 may grow, unless it is below bfloat16's own rounding.
In trained models that add before they normalise, as BERT does, it grows by 1.3 to 1.5; in models
that normalise before it stays the same."""

_EMBEDDINGS = "embeddings"


class NormInBfloat16(Module):
    """A layer normalisation computed in float32, whose output is rounded to bfloat16."""

    def __init__(self, norm: LayerNorm) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the normalised vectors, bfloat16, in the shape of the given ones."""
        return self.norm(vectors).to(torch.bfloat16)


@torch.no_grad()
def round_norms(module: Module, embed: Callable[[], Tensor], exact: Tensor) -> None:
    """Let the normalisations of a module hand on bfloat16, if embeddings stay about as accurate.

    Those in a part called "embeddings" are left as they are: in models that normalise before they
    add, all layers add to their output.

    # Parameters

    module : a module whose linear layers compute in bfloat16. It is changed in place.
    embed : returns embeddings of a few texts, computed by the module.
    exact : the embeddings of the same texts, computed in float32.
    """
    places = [
        (parent, name, child)
        for path, parent in module.named_modules()
        if _EMBEDDINGS not in path.split(".")
        for name, child in parent.named_children()
        if type(child) is LayerNorm
    ]
    unavoidable = float(exact.norm()) * torch.finfo(torch.bfloat16).eps
    with torch.autocast("cpu", torch.bfloat16):
        allowed = max(unavoidable, _LARGEST_LOSS * _distance(embed, exact))
        for parent, name, norm in places:
            setattr(parent, name, NormInBfloat16(norm))
        if _distance(embed, exact) <= allowed:
            return
    for parent, name, norm in places:
        setattr(parent, name, norm)


def _distance(embed: Callable[[], Tensor], exact: Tensor) -> float:
    try:
        return float((embed().float() - exact).norm())
    except (RuntimeError, TypeError, AttributeError):  # code that expects float32 or a LayerNorm
        return float("inf")
