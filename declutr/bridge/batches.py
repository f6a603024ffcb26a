"""What happens to the batches of AllenNLP's own data loaders on their way to a GPU."""

import functools
import importlib
from types import ModuleType
from typing import Any

HOST_COPIES = "declutr.system.host_memory"
_LARGEST = 1 << 26  # bytes; page-locked memory is not given back


def sent_from_pinned_memory(module: ModuleType) -> bool:
    """Let `move_to_device` send tensors to a GPU from page-locked memory, and let them remember
    what they hold, as those of the data loader "declutr" do.

    AllenNLP copies each from memory that the system may move, and waits until the GPU has done all
    it had to do before. Can go when AllenNLP does not.
    """
    original = module.move_to_device

    @functools.wraps(original)
    def move_to_device(obj: Any, device: Any) -> Any:
        target = module.int_to_device(device)
        if (
            isinstance(obj, module.torch.Tensor)
            and (obj.device.type, target.type) == ("cpu", "cuda")
            and obj.layout == module.torch.strided
            and obj.nbytes <= _LARGEST
            and not obj.is_pinned()  # whoever pinned it may fill it anew
        ):
            return importlib.import_module(HOST_COPIES).to_device(obj, target)
        return original(obj, device)  # which calls this for what it finds inside

    module.move_to_device = move_to_device  # type: ignore[attr-defined]
    return True
