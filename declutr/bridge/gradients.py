"""Repair of gradient clipping for embeddings with sparse gradients."""

from types import ModuleType
from typing import Any


def sparse_norms(module: ModuleType) -> bool:
    """Let `grad_norm` rescale sparse gradients, such as those of embeddings with `sparse: true`.

    Since 1.13, torch computes the norm with functions that refuse them. The norm is that of the
    same gradients as dense tensors. Can be removed when `torch.nn.utils.clip_grad_norm_` takes
    sparse gradients.
    """
    import torch

    try:
        torch.linalg.vector_norm(torch.ones(1).to_sparse())
        return False
    except (NotImplementedError, RuntimeError):
        pass
    plain = module.clip_grad_norm_

    def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        found = [_with_dense_gradient(p) for p in parameters]
        return plain([p for p in found if p is not None], *args, **kwargs)

    module.clip_grad_norm_ = clip_grad_norm_  # type: ignore[attr-defined]
    return True


def _with_dense_gradient(parameter: Any) -> Any:
    """Return the parameter, or a tensor whose gradient is the memory of its sparse gradient.

    The gradient is coalesced first: rows that occur several times are summed. For a sparse gradient
    without values it is `None`, because torch has no infinity norm of nothing.
    """
    if parameter.grad is None or not parameter.grad.is_sparse:
        return parameter
    parameter.grad = parameter.grad.coalesce()
    values = parameter.grad.detach()._values()
    if not values.numel():
        return None
    holder = values.detach()
    holder.grad = values
    return holder
