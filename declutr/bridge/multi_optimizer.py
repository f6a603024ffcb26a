"""Repair of the optimizer "multi", whose learning rates no schedule reached."""

from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces


def scheduled_groups(module: ModuleType) -> bool:
    """Let schedules set the learning rates with which the optimizers inside "multi" train.

    The parameter groups of "multi" are copies of those that its optimizers train with. Schedules,
    and the command `find-learning-rate`, set the rates of the copies, so that the logs showed a
    schedule and training went on at the rate it began with. Can be removed when `MultiOptimizer`
    shares the groups of its optimizers.
    """
    cls = module.MultiOptimizer

    @replaces(cls)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _share_groups(self)

    @replaces(cls)
    def load_state_dict(original: Any, self: Any, training_state: dict[str, Any]) -> None:
        original(self, training_state)  # each optimizer then has new groups
        _share_groups(self)

    return True


def _share_groups(several: Any) -> None:
    """Put the groups of the optimizers inside in the place of those of "multi" itself.

    Empty groups stay as they are. What schedules have noted in a group, such as `initial_lr`, is
    kept.
    """
    trained = {
        id(parameter): group
        for optimizer in several.optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for number, group in enumerate(several.param_groups):
        if group["params"]:
            own = trained[id(group["params"][0])]
            several.param_groups[number] = own
            for key, value in group.items():
                own.setdefault(key, value)
