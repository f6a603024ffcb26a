"""Normalisations that hand on bfloat16, in models that normalise after and before they add."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import LayerNorm, Module
from transformers import AutoModel, BertConfig, DistilBertConfig, ModernBertConfig

from declutr.transformer.bfloat16_norms import NormInBfloat16, round_norms
from declutr.transformer.linear_layers import prepare_linear_layers

SIZES = {
    "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": 48,
}  # fmt: skip
CONFIGS = {
    "bert": BertConfig(**SIZES),
    "distilbert": DistilBertConfig(vocab_size=50, dim=32, n_layers=3, n_heads=2, hidden_dim=48),
    "modernbert": ModernBertConfig(**SIZES, pad_token_id=0, cls_token_id=1, sep_token_id=2),
}
IDS = torch.arange(3, 47).view(2, 22)


def made(name: str) -> Module:
    torch.manual_seed(0)
    return AutoModel.from_config(CONFIGS[name]).eval()


def states(model: Module) -> list[torch.Tensor]:
    with torch.inference_mode():
        return list(model(input_ids=IDS, output_hidden_states=True).hidden_states)


def rounded(model: Module) -> int:
    return sum(isinstance(part, NormInBfloat16) for part in model.modules())


@pytest.mark.parametrize("name", CONFIGS)
def test_embeddings_are_about_as_near_to_float32(name: str) -> None:
    model, exact = made(name), states(made(name))
    plain = made(name)
    norms = [path for path, part in model.named_modules() if type(part) is LayerNorm]
    prepare_linear_layers(model, lambda: states(model)[-1].float(), "bfloat16")
    assert rounded(model) == len([path for path in norms if "embeddings" not in path]) > 3
    with torch.autocast("cpu", torch.bfloat16):
        found, before = states(model), states(plain)
    distances = [(each[-1].float() - exact[-1]).norm() for each in (found, before)]
    assert 0 < distances[0] < max(2 * distances[1], 2**-7 * exact[-1].norm())
    # Where layers add to what was not normalised, that stays in float32.
    inner = {state.dtype for state in found[1:-1]}
    assert inner == {torch.float32 if name == "modernbert" else torch.bfloat16}


class Own(Module):
    """A normalisation, followed by what needs its output to be as exact as it was, or float32."""

    def __init__(self, after: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.norm, self._after = LayerNorm(8), after

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return self._after(self.norm(vectors))


@pytest.mark.parametrize(
    "after",
    [lambda v: v.new_zeros(v.shape, dtype=torch.float32).index_put((torch.arange(4),), v),
     lambda v: (v * 1e4).frac()],
    ids=["only float32", "lost digits"],
)  # fmt: skip
def test_a_model_that_needs_float32_keeps_it(after: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    model, inputs = Own(after), torch.randn(4, 8)
    with torch.no_grad():
        round_norms(model, lambda: model(inputs), exact=model(inputs))
    assert type(model.norm) is LayerNorm and rounded(model) == 0


def test_a_model_that_reads_the_weights_of_its_norms_keeps_them() -> None:
    class Reads(Own):
        def forward(self, vectors: torch.Tensor) -> torch.Tensor:
            return self.norm(vectors) * self.norm.weight

    model, inputs = Reads(torch.relu), torch.randn(4, 8)
    with torch.no_grad():
        round_norms(model, lambda: model(inputs), exact=model(inputs))
        assert type(model.norm) is LayerNorm
