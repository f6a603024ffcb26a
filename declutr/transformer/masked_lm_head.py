"""The head of a masked language model, alone: on the positions that were masked, and no others."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions


def masked_lm_logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Vocabulary logits `(M, V)` of hidden states `(M, d)`, by the head of any masked LM.

    The head of `AutoModelForMaskedLM` has another name and shape in every family, but its forward
    is always encoder, then head. So that forward runs on a shallow copy whose encoder returns what
    it is given; the copy shares every parameter.
    """
    prefix = model.base_model_prefix
    headed = copy.copy(model)
    headed._modules = dict(model._modules)
    headed._modules[prefix] = _Given(getattr(model, prefix), hidden.unsqueeze(0))
    return headed(return_dict=True).logits.squeeze(0)


class _Given(torch.nn.Module):
    """Stands in the encoder's place; everything but its forward is the encoder's."""

    def __init__(self, encoder: torch.nn.Module, hidden: torch.Tensor) -> None:
        super().__init__()
        self.__dict__["_encoder"] = encoder  # not a submodule: nothing is to be registered twice
        self.__dict__["_hidden"] = hidden

    def forward(self, *args: Any, **kwargs: Any) -> BaseModelOutputWithPoolingAndCrossAttentions:
        return BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=self._hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_encoder"], name)
