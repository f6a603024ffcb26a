"""The projector against its layers written out."""

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.modules.heads import Head
from declutr.recipes import recipe_path


def built(**settings: object) -> Head:
    return Head.from_params(Params({"type": "projector", "input_dim": 5, **settings}))


def test_the_default_projector_has_the_layers_of_the_paper() -> None:
    head = built()
    kinds = [type(layer).__name__ for layer in head.layers]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear"]
    shapes = [tuple(layer.weight.shape) for layer in head.layers if hasattr(layer, "in_features")]
    assert shapes == [(4096, 5), (4096, 4096), (4096, 4096)]
    assert all(layer.bias is None for layer in head.layers if hasattr(layer, "in_features"))
    assert (head.input_dim, head.output_dim) == (5, 4096)


def test_the_projector_computes_its_layers_in_order() -> None:
    torch.manual_seed(0)
    head, x = built(hidden_dims=[4, 3]).double(), torch.randn(6, 5, dtype=torch.float64)
    first, norm, _, last = head.layers
    hidden = x @ first.weight.T
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + norm.eps).sqrt()
    expected = hidden.clamp_min(0) @ last.weight.T
    assert torch.allclose(head(x), expected, atol=1e-12)


@pytest.mark.parametrize("dims", [[7], [4, 7]])
def test_a_projector_without_batch_normalisation_has_biases(dims: list[int]) -> None:
    head = built(hidden_dims=dims, batch_norm=False)
    x = torch.randn(3, 5)
    assert head(x).shape == (3, 7)
    assert torch.allclose(head(x)[:1], head(x[:1]), atol=1e-6)  # rows are on their own
    assert all(layer.bias is not None for layer in head.layers if hasattr(layer, "bias"))


def test_a_projector_that_ends_with_a_batch_normalisation_as_that_of_simsiam() -> None:
    torch.manual_seed(0)
    plain, head = built(hidden_dims=[4, 3]), built(hidden_dims=[4, 3], last_batch_norm=True)
    assert len(plain.layers) + 1 == len(head.layers)
    assert head.load_state_dict(plain.state_dict(), strict=False).unexpected_keys == []
    assert len(list(head.parameters())) == len(list(plain.parameters()))  # no scale, no offset
    before = plain.double()(x := torch.randn(6, 5, dtype=torch.float64))
    expected = (before - before.mean(0)) / (before.var(0, unbiased=False) + 1e-5).sqrt()
    assert torch.allclose(head.double()(x), expected, atol=1e-12)
    alone = built(hidden_dims=[3], batch_norm=False, last_batch_norm=True)
    assert alone.layers[0].bias is None


def test_a_projector_whose_last_layer_has_a_bias() -> None:
    head = built(hidden_dims=[4, 3], last_bias=True)
    assert head.layers[0].bias is None and head.layers[-1].bias.shape == (3,)
    assert built(hidden_dims=[4, 3], batch_norm=False, last_bias=False).layers[-1].bias is None


@pytest.mark.parametrize("dims", [[], [4, 0]])
def test_wrong_widths_are_refused(dims: list[int]) -> None:
    with pytest.raises(ConfigurationError, match="hidden_dims must hold widths of at least 1"):
        built(hidden_dims=dims)


def test_the_tanh_head_is_a_linear_layer_and_tanh() -> None:
    head = Head.from_params(Params({"type": "tanh", "input_dim": 5}))
    x = torch.randn(3, 5)
    assert torch.allclose(head(x), torch.tanh(x @ head.linear.weight.T + head.linear.bias))
    assert (head.input_dim, head.output_dim) == (5, 5)


def kinds(recipe: str, part: str) -> str:
    """The layers of a recipe's head or predictor: normalisations without scale are in brackets."""
    settings = Params.from_file(str(recipe_path(recipe))).as_dict(quiet=True)["model"][part]
    narrow = [width // 64 for width in settings["hidden_dims"]]
    names = []
    head = Head.from_params(Params({**settings, "input_dim": 5, "hidden_dims": narrow}))
    for layer in head.layers:
        if isinstance(layer, torch.nn.Linear):
            names.append(f"{64 * layer.out_features}{'+' if layer.bias is not None else ''}")
        elif isinstance(layer, torch.nn.BatchNorm1d):
            names.append("norm" if layer.affine else "(norm)")
    return " ".join(names)


@pytest.mark.parametrize(
    ("recipe", "part", "expected"),
    [
        ("simsiam", "head", "2048 norm 2048 norm 2048 (norm)"),
        ("simsiam", "predictor", "512 norm 2048+"),
        ("byol", "head", "4096 norm 256"),
        ("byol", "predictor", "4096 norm 256"),
        ("barlow_twins", "head", "4096 norm 4096 norm 4096"),
        ("scd", "head", "4096 norm 4096 norm 4096"),
        ("swav", "head", "2048 norm 128+"),
        ("instance_discrimination", "head", "128+"),
    ],
)
def test_heads_of_recipes_are_those_of_public_codes(
    recipe: str, part: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for biases right before a normalisation, which takes them out, and Barlow Twins' 8192."""
    monkeypatch.setenv("TRANSFORMER_MODEL", "anything")
    assert kinds(recipe, part) == expected
