"""A guard: operations for which the host would have to wait for a GPU."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ATEN = torch.ops.aten
LOOKS = {
    ATEN._local_scalar_dense.default,
    ATEN.nonzero.default,
    ATEN.masked_select.default,
    ATEN.equal.default,
    ATEN.is_nonzero.default,
    ATEN._unique2.default,
    ATEN.bincount.default,
    ATEN.repeat_interleave.Tensor,
}
INDEXED = {ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default}


class NeverWaits(TorchDispatchMode):
    """Raises at what looks into a tensor, though it lies on a CPU: values and sizes that depend on
    them, flags as an index, single values of the host that are written by an index."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        assert func not in LOOKS, f"{func} waits"
        if func in INDEXED:
            assert all(i is None or i.dtype != torch.bool for i in args[1]), f"{func} of flags"
            assert len(args) < 3 or args[2].dim(), f"{func} of a single value"
        return func(*args, **(kwargs or {}))
