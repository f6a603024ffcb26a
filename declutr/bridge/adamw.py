"""AdamW as `transformers` had it before 4.50: what AllenNLP's `huggingface_adamw` was built on."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay (Loshchilov & Hutter, arXiv:1711.05101, algorithm 2).

    It differs from `torch.optim.AdamW` where published AllenNLP recipes may depend on it: the bias
    correction can be off (as in BERT's own code), eps is 1e-6 and added to the *uncorrected* root,
    no decay is the default, and the decay is applied after the step, to the new weights.
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
        """Take one step; `closure` re-evaluates the model and returns the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]
    ) -> None:
        if gradient.is_sparse:
            raise RuntimeError("AdamW does not support sparse gradients; use SparseAdam instead.")
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        beta1, beta2 = group["betas"]
        state["step"] += 1
        mean, square = state["exp_avg"], state["exp_avg_sq"]  # as the parameter
        mean.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)

        size = group["lr"]
        if group["correct_bias"]:
            steps = int(state["step"])
            size *= math.sqrt(1.0 - beta2**steps) / (1.0 - beta1**steps)
        parameter.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-size)
        if group["weight_decay"] > 0.0:
            parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
