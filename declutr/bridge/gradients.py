"""Repairs of gradients: their norms, means over the batches of a step, and limits."""

import importlib
import inspect
import logging
import re
from functools import partial
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import DISTRIBUTED, NEAREST, replaces
from declutr.bridge.resumption import was_taken

logger = logging.getLogger(__name__)


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


def means_of_batches(module: ModuleType) -> None:
    """Let a step with `use_amp` take the mean of its batches' gradients, as it does without.

    With `num_gradient_accumulation_steps`, AllenNLP divides the loss by the number of batches, but
    its callback for mixed precision gets the loss undivided, and gradients were their sum.
    Can be removed when the callback gets the divided loss.
    """

    @replaces(module.MixedPrecisionBackwardCallback)
    def on_backward(
        original: Any, self: Any, trainer: Any, batch_outputs: Any, *args: Any, **kwargs: Any
    ) -> bool:
        batches = getattr(trainer, "_batches_in_step", 1)  # of `batches_of_processes`
        mean = {**batch_outputs, "loss": batch_outputs["loss"] / batches}
        return original(self, trainer, mean, *args, **kwargs)


def adversarial_gradients(module: ModuleType) -> None:
    """Let the callback of `adversarial_bias_mitigator` update by the equation of its paper.

    Zhang et al. (2018), equation 1, takes from a gradient g its projection (g u) u on the direction
    u of the adversary's gradient. AllenNLP subtracts one number from all entries, the sum of g u u.
    It also discards, in each backward pass, the gradients of the batches before within a step, and
    where the adversary's gradient is zero, it divides by its length.

    Can be removed when AllenNLP computes the projection, and adds up the gradients of a step.
    """
    import torch

    @replaces(module.AdversarialBiasMitigatorBackwardCallback)
    def on_backward(
        original: Any,
        self: Any,
        trainer: Any,
        batch_outputs: Any,
        backward_called: bool,
        **kwargs: Any,
    ) -> bool:
        model = trainer.model
        if backward_called or not (hasattr(model, "predictor") and hasattr(model, "adversary")):
            return original(self, trainer, batch_outputs, backward_called, **kwargs)  # raises
        batches = getattr(trainer, "_batches_in_step", 1)  # of `batches_of_processes`
        before = _taken_gradients(model)
        (batch_outputs["adversary_loss"] / batches).backward(retain_graph=True)
        against = _taken_gradients(model.predictor)
        (batch_outputs["loss"] / batches).backward()
        for parameter, gradient in against.items():
            if parameter.grad is not None:
                length = torch.linalg.norm(gradient) + torch.finfo(gradient.dtype).tiny
                unit = gradient / length
                parameter.grad -= (parameter.grad * unit).sum() * unit
                parameter.grad -= self.adversary_loss_weight * gradient
        for parameter, gradient in before.items():
            parameter.grad = gradient if parameter.grad is None else gradient + parameter.grad
        batch_outputs["adversary_loss"] = batch_outputs["adversary_loss"].detach()
        return True


def _taken_gradients(model: Any) -> dict[Any, Any]:
    """Return the gradients of parameters that have any, which lose them."""
    found = {p: p.grad for p in model.parameters() if p.grad is not None}
    for parameter in found:
        parameter.grad = None
    return found


def batches_of_processes(module: ModuleType) -> None:
    """Let a step have as many batches in each of several processes as in the one with the fewest.

    Where a process had no batches left within a step of `num_gradient_accumulation_steps`, the
    others took it with the gradients of the batches up to there, divided by the number of all of
    them, so that they counted less; and they asked for the next batch while it exchanged other
    things. The trainer notes the number of batches for `means_of_batches`.

    Can be removed when processes agree on the batches of a step before they take it.
    """

    @replaces(module.GradientDescentTrainer)
    def _train_epoch(original: Any, self: Any, epoch: int) -> Any:
        if self._num_gradient_accumulation_steps == 1:
            return original(self, epoch)
        util = module.common_util
        plain = util.lazy_groups_of

        def steps(batches: Any, size: int) -> Any:
            util.lazy_groups_of = plain
            groups = plain(batches, size)
            if self._distributed:
                shared = importlib.import_module(DISTRIBUTED).groups_of_processes
                groups = shared(groups, size, self.cuda_device, partial(was_taken, self))
            for group in groups:
                self._batches_in_step = len(group)
                yield group

        util.lazy_groups_of = steps
        try:
            return original(self, epoch)
        finally:
            util.lazy_groups_of = plain


def unscaled_norms(module: ModuleType) -> None:
    """Let `grad_norm: true` report the norm of gradients that `use_amp` has scaled, without scale.

    Can be removed when `rescale_gradients` divides by the scale.
    """

    @replaces(module.GradientDescentTrainer)
    def rescale_gradients(original: Any, self: Any) -> float | None:
        norm = original(self)
        scaled = self._grad_norm is True and self._scaler is not None
        return norm / self._scaler.get_scale() if scaled else norm


def whole_steps(module: ModuleType) -> None:
    """Refuse `num_gradient_accumulation_steps` below 1, and tell what `null` does.

    AllenNLP takes all batches of an epoch in one step for `null`, as its tests do, and says
    nothing of it. Can be removed when AllenNLP checks the number.
    """

    @replaces(module.GradientDescentTrainer)
    def from_partial_objects(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(cls, *args, **kwargs).arguments
        batches = given.get("num_gradient_accumulation_steps", 1)
        if batches is None:
            logger.warning(
                "num_gradient_accumulation_steps is null: a step has all batches of an epoch. If "
                "each batch is meant to be a step, set it to 1."
            )
        elif batches < 1:
            raise module.ConfigurationError(
                f"num_gradient_accumulation_steps is {batches}, expected the number of batches "
                "that a step has: 1, or more."
            )
        return original(cls, *args, **kwargs)


def frozen_names(module: ModuleType) -> None:
    """Warn of a regular expression in a trainer's `no_grad` that no parameter matches.

    AllenNLP warns of those in `parameter_groups`; here, what should have been frozen was trained.
    Can be removed when it warns of these, too.
    """

    @replaces(module.GradientDescentTrainer)
    def from_partial_objects(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(cls, *args, **kwargs).arguments
        names = [name for name, _ in given["model"].named_parameters()]
        for pattern in given.get("no_grad") or ():
            if not any(re.search(pattern, name) for name in names):
                logger.warning(
                    f"'{pattern}' in the trainer's no_grad matches no parameter, so that it "
                    f"freezes nothing. Names are such as '{names[0] if names else ''}'."
                )
        return original(cls, *args, **kwargs)


def listed_patterns(module: ModuleType) -> None:
    """Refuse a text in place of the list of patterns of a parameter group.

    Each of its letters was a pattern, so that `["bias", {"weight_decay": 0}]` held nearly all
    parameters. Can be removed when `make_parameter_groups` refuses it.
    """

    def require_lists(groups: Any) -> None:
        for group in groups or ():
            if isinstance(group, str) or len(group) != 2 or isinstance(group[0], str):
                raise module.ConfigurationError(
                    f"Got {group!r} in parameter_groups, expected a list of patterns with an "
                    'object of settings, such as [["bias", "norm"], {"weight_decay": 0}].'
                )

    @replaces(module)
    def make_parameter_groups(original: Any, model_parameters: Any, groups: Any = None) -> Any:
        require_lists(groups)
        return original(model_parameters, groups)

    @replaces(module.MultiOptimizer)
    def __init__(
        original: Any, self: Any, model_parameters: Any, optimizers: Any, parameter_groups: Any
    ) -> None:
        require_lists(parameter_groups)
        original(self, model_parameters, optimizers, parameter_groups)


def settings_of_groups(module: ModuleType) -> None:
    """Warn of settings in `parameter_groups` that the optimizer does not have.

    Torch takes any, so that the parameters of a group with a misspelt `weight_decay`, or with
    `learning_rate` for `lr`, were trained as all others. Can be removed when torch refuses them.
    """

    @replaces(module.GradientDescentTrainer)
    def from_partial_objects(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        trainer = original(cls, *args, **kwargs)
        given = inspect.signature(original).bind(cls, *args, **kwargs).arguments
        groups = _settings_of(given.get("optimizer")).get("parameter_groups") or ()
        optimizer = trainer.optimizer
        several = getattr(optimizer, "optimizers", None)  # of AllenNLP's MultiOptimizer, by name
        parts = several.values() if isinstance(several, dict) else [optimizer]
        if not groups or not all(hasattr(part, "defaults") for part in parts):
            return trainer
        taken = sorted(set().union(*(part.defaults for part in parts)))
        own = {*taken, "requires_grad", "optimizer_name", "initial_lr", "initial_momentum"}
        for key in sorted({key for _, settings in groups for key in settings} - own):
            told = importlib.import_module(NEAREST).of_wrong_keys([key], taken)
            logger.warning(
                f"'{key}' in parameter_groups changes nothing: the optimizer "
                f"{type(optimizer).__name__} has no such setting. {told}"
            )
        return trainer


def no_norms(module: ModuleType) -> None:
    """Let `grad_norm: null` be no limit of the norm of gradients, as false is.

    With null, the first step of training ended with a `TypeError` of torch's.
    Can be removed when `rescale_gradients` asks for null.
    """

    @replaces(module.GradientDescentTrainer)
    def rescale_gradients(original: Any, self: Any) -> float | None:
        return None if self._grad_norm is None else original(self)


def own_names(module: ModuleType) -> None:
    """Let parameters have the names in several processes that they have in one.

    DistributedDataParallel puts "module." before each of them. So a regular expression that begins
    with ^ matched nothing: what `parameter_groups` names was trained at the rate and decay of the
    rest, and what `no_grad` names was trained. Can be removed when the trainer takes the names of
    the model.
    """

    @replaces(module.TorchDdpAccelerator)
    def wrap_model(original: Any, self: Any, model: Any) -> Any:
        model, wrapped = original(self, model)
        wrapped.model.named_parameters = model.named_parameters
        return model, wrapped


def frozen_in_processes(module: ModuleType) -> None:
    """Let several processes train a model of which a part is frozen, or is for some epochs.

    DistributedDataParallel waits for the gradients of all that is trained when it gets the model,
    and AllenNLP freezes by `no_grad` and `parameter_groups` after that: training ended at the
    second step, unless `find_unused_parameters` was set. It is set for `gradual_unfreezing`, which
    trains these layers later. Can be removed when AllenNLP freezes before, and sets it.
    """

    @replaces(module.GradientDescentTrainer)
    def from_partial_objects(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(original).bind(cls, *args, **kwargs)
        given = bound.arguments
        if given.get("distributed"):
            patterns = [*(given.get("no_grad") or ())]
            # Where optimizer or schedule are their name alone, these are no Params.
            groups = _settings_of(given.get("optimizer")).get("parameter_groups") or []
            for group in [one for one in groups if one[1].get("requires_grad") is False]:
                patterns += group[0]
                groups.remove(group)  # an optimizer leaves it out, too
            for name, parameter in given["model"].named_parameters():
                if any(re.search(pattern, name) for pattern in patterns):
                    parameter.requires_grad_(False)
            schedule = repr(_settings_of(given.get("learning_rate_scheduler")))
            if "'gradual_unfreezing': True" in schedule:  # also inside "combined"
                accelerator = given.get("ddp_accelerator") or module.TorchDdpAccelerator(
                    cuda_device=given["cuda_device"]
                )
                if hasattr(accelerator, "_ddp_kwargs"):  # "fsdp" needs nothing
                    accelerator._ddp_kwargs["find_unused_parameters"] = True
                given["ddp_accelerator"] = accelerator
        return original(*bound.args, **bound.kwargs)


def _settings_of(lazy: Any) -> dict[str, Any]:
    """Return the settings that something is built of later."""
    return getattr(getattr(lazy, "_params", None), "params", {})


def limited_in_search(module: ModuleType) -> None:
    """Let `find-lr` limit gradients by `grad_clipping`, as training does.

    AllenNLP leaves that out, so that losses rise at other rates than they do in training.
    Can be removed when `search_learning_rate` calls `clip_gradient`.
    """
    import torch

    @replaces(module)
    def search_learning_rate(original: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        limit, rescale = trainer._grad_clipping, trainer.rescale_gradients
        if limit is None:
            return original(trainer, *args, **kwargs)

        def rescale_and_clip() -> Any:
            norm = rescale()
            found = [p for p in trainer.model.parameters() if p.grad is not None]
            torch.nn.utils.clip_grad_value_(found, limit)  # the search does not scale losses
            return norm

        trainer.rescale_gradients = rescale_and_clip
        try:
            return original(trainer, *args, **kwargs)
        finally:
            del trainer.rescale_gradients


def accumulated_in_search(module: ModuleType) -> None:
    """Let a step of `find-lr` have as many batches as a step of training.

    AllenNLP takes single batches, whatever `num_gradient_accumulation_steps` is, so that gradients
    are noisier than in training, and losses rise at lower rates. `--num-batches` is the number of
    steps. Can be removed when `search_learning_rate` takes groups of batches.
    """
    from allennlp.common.util import lazy_groups_of

    @replaces(module)
    def search_learning_rate(original: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        size = trainer._num_gradient_accumulation_steps
        loader, outputs_of = trainer.data_loader, trainer.batch_outputs
        if size == 1:
            return original(trainer, *args, **kwargs)

        def outputs_of_group(group: list[Any], **options: Any) -> dict[str, Any]:
            total = 0.0
            for batch in group[:-1]:
                loss = outputs_of(batch, **options)["loss"] / len(group)
                loss.backward()  # at once, for memory; the search goes backward from the last one
                total = total + loss.detach()
            outputs = outputs_of(group[-1], **options)
            return {**outputs, "loss": outputs["loss"] / len(group) + total}

        trainer.data_loader = lazy_groups_of(loader, size)
        trainer.batch_outputs = outputs_of_group
        try:
            return original(trainer, *args, **kwargs)
        finally:
            trainer.data_loader = loader
            del trainer.batch_outputs
