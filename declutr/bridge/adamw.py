"""The AdamW optimizer of `transformers` before 4.50, on which `huggingface_adamw` is built."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Any

import torch

_FUSED = ("cpu", "cuda")  # devices for which torch has one kernel for all tensors

_PLAIN = (torch.nn.Parameter, torch.Tensor)  # types of tensors that are not sharded


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter, arXiv:1711.05101, algorithm 2).

    It differs from `torch.optim.AdamW` in details that published AllenNLP recipes may depend on:
    the bias correction can be switched off (as in BERT's own code), `eps` is 1e-6 and is added to
    the *uncorrected* root, there is no weight decay by default, and the decay is applied after the
    step, to the new weights.

    # Parameters

    params : parameters to optimize, or dictionaries of parameter groups.
    lr : learning rate.
    betas : decay rates of the running means of the gradient and of its square.
    eps : added to the root of the mean square.
    weight_decay : rate of the decoupled weight decay.
    correct_bias : whether to correct the bias of the running means.

    # Raises

    `ValueError` : a negative learning rate or `eps`, or a beta outside [0, 1).
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
    ) -> None:
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr} - should be >= 0.0")
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta at index {index}: {beta} - should be in [0.0, 1.0)")
        if eps < 0.0:
            raise ValueError(f"Invalid epsilon value: {eps} - should be >= 0.0")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "correct_bias": correct_bias,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update all parameters that have a gradient.

        # Parameters

        closure : re-evaluates the model and returns the loss.

        # Returns

        The loss that `closure` returned, or `None` without a closure.

        # Raises

        `RuntimeError` : a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            alike = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self._advanced(parameter)
                    moments = state["exp_avg"], state["exp_avg_sq"]
                    key = parameter.device, parameter.dtype, state["step"]
                    alike[key].append((parameter, parameter.grad, *moments))
            for (device, dtype, steps), rows in alike.items():
                columns = [list(column) for column in zip(*rows, strict=True)]
                self._update(columns, group, device, dtype, steps)
        return loss

    def _advanced(self, parameter: Any) -> dict[str, Any]:
        """Return the state of a parameter with its step count increased, creating it if needed."""
        if parameter.grad.is_sparse:
            raise RuntimeError("AdamW does not support sparse gradients; use SparseAdam instead.")
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] = int(state["step"]) + 1  # other implementations save it as a tensor
        return state

    def _update(
        self,
        columns: list[list[torch.Tensor]],
        group: dict[str, Any],
        device: torch.device,
        dtype: torch.dtype,
        steps: int,
    ) -> None:
        """Update parameters that share a device, a dtype and a step count.

        # Parameters

        columns : four lists of equal length: parameters, gradients, means and mean squares.
        """
        beta1, beta2 = group["betas"]
        size = group["lr"]
        if group["correct_bias"]:
            size *= math.sqrt(1.0 - beta2**steps) / (1.0 - beta1**steps)
        decay = group["lr"] * group["weight_decay"]
        if any(type(parameter) not in _PLAIN for parameter in columns[0]):
            columns = [[own_part(tensor) for tensor in column] for column in columns]
        weights, gradients, means, squares = columns
        # torch's fused kernel applies the decay before the step, and this optimizer after it. Both
        # give the same result if the step is decayed as well.
        rate = size * (1.0 - decay)
        same_types = all(gradient.dtype == dtype for gradient in gradients)
        # The kernel of the CPU takes as many numbers as a tensor has from where it begins: of a
        # view, it would change what lies between the rows.
        contiguous = all(map(torch.Tensor.is_contiguous, chain(*columns)))
        if device.type not in _FUSED or rate <= 0.0 or not (same_types and contiguous):
            for w, g, mean, square in zip(weights, gradients, means, squares, strict=True):
                _update_one(w, g, mean, square, group["betas"], size, group["eps"], decay)
            return
        torch._fused_adamw_(
            weights,
            gradients,
            means,
            squares,
            [],  # the maxima that only AMSGrad uses
            # After this many steps the kernel's own bias corrections are 1: they are already part
            # of `rate`.
            [_many_steps(device)] * len(weights),
            lr=rate,
            beta1=beta1,
            beta2=beta2,
            weight_decay=decay / rate,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )


@cache
def _many_steps(device: torch.device) -> torch.Tensor:
    return torch.tensor(1e9, device=device)


def _update_one(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    betas: tuple[float, float],
    size: float,
    eps: float,
    decay: float,
) -> None:
    mean.mul_(betas[0]).add_(gradient, alpha=1.0 - betas[0])
    square.mul_(betas[1]).addcmul_(gradient, gradient, value=1.0 - betas[1])
    parameter.addcdiv_(mean, square.sqrt().add_(eps), value=-size)
    if decay > 0.0:
        parameter.mul_(1.0 - decay)


def own_part(tensor: Any) -> torch.Tensor:
    """Return this process's part of a sharded tensor, or any other tensor unchanged.

    The update is elementwise, so it can run on the local parts, and torch takes four times as long
    for the same operations on sharded tensors.
    """
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
