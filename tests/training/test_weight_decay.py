"""Decay spares biases and normalisations by the type of their module, in every family."""

from typing import Any

import pytest
import torch
import transformers
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.optimizers import Optimizer

import declutr.plugin  # noqa: F401
from declutr.modules.heads import Projector
from declutr.training.weight_decay import UNDECAYED, optimizing, with_undecayed
from tests.families import FAMILIES

SMALL = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
SMALL |= {"intermediate_size": 8, "max_position_embeddings": 16, "pad_token_id": 1}
SEQ2SEQ = {"vocab_size": 30, "d_model": 8, "max_position_embeddings": 16, "pad_token_id": 1}
SEQ2SEQ |= {f"{part}_layers": 1 for part in ("encoder", "decoder")}
SEQ2SEQ |= {f"{part}_attention_heads": 2 for part in ("encoder", "decoder")}
SEQ2SEQ |= {f"{part}_ffn_dim": 8 for part in ("encoder", "decoder")}
XLM = {"vocab_size": 30, "emb_dim": 8, "n_layers": 1, "n_heads": 2, "max_position_embeddings": 16}
# In these families, release 1.5 applied decay to some normalisations.
ESCAPED: dict[str, dict[str, Any]] = {
    "flaubert": XLM,
    "megatron-bert": SMALL,
    "bart": SEQ2SEQ,
    "mbart": SEQ2SEQ,
    "mvp": SEQ2SEQ,
    "esm": {**SMALL, "mask_token_id": 2, "emb_layer_norm_before": True},
}
OTHERS: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "roberta": SMALL,
    "albert": {**SMALL, "embedding_size": 8},
    "distilbert": {"vocab_size": 30, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 8},
    "xlm-roberta": SMALL,
    "electra": {**SMALL, "embedding_size": 8},
    "modernbert": SMALL,
    "xlm": XLM,
    "mpnet": SMALL,
    "deberta-v2": SMALL,
    "mobilebert": {**SMALL, "embedding_size": 8, "intra_bottleneck_size": 8},
    "t5": {"vocab_size": 30, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2},
}
NORMALISATIONS = (torch.nn.LayerNorm, torch.nn.RMSNorm, torch.nn.modules.batchnorm._NormBase)


def transformer(family: str) -> torch.nn.Module:
    config = transformers.AutoConfig.for_model(family, **{**ESCAPED, **OTHERS}[family])
    return transformers.AutoModel.from_config(config)


def optimizer_for(model: torch.nn.Module, kind: str = "huggingface_adamw") -> Optimizer:
    groups = [[[UNDECAYED], {"weight_decay": 0.0}]]
    params = {"type": kind, "lr": 1e-3, "weight_decay": 0.1, "parameter_groups": groups}
    with optimizing(model):
        return Optimizer.from_params(
            Params(params), model_parameters=[[n, p] for n, p in model.named_parameters()]
        )


def decayed(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> set[str]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = [group for group in optimizer.param_groups if group["weight_decay"]]
    return {names[id(parameter)] for group in groups for parameter in group["params"]}


def to_be_spared(model: torch.nn.Module) -> set[str]:
    """Return the biases, and the parameters of normalisations by type or name of the class."""
    names = {name for name, _ in model.named_parameters() if "bias" in name}
    for prefix, module in model.named_modules():
        if isinstance(module, NORMALISATIONS) or "norm" in type(module).__name__.lower():
            held = [name for name, _ in module.named_parameters(recurse=False)]
            names |= {f"{prefix}.{name}" for name in held}
    return names


def test_all_families_are_tried() -> None:
    assert FAMILIES.keys() <= OTHERS.keys()


@pytest.mark.parametrize("family", [*ESCAPED, *OTHERS])
def test_decay_spares_biases_and_norms_in_every_family(family: str) -> None:
    model = transformer(family)
    spared, everything = to_be_spared(model), {name for name, _ in model.named_parameters()}
    assert decayed(model, optimizer_for(model)) == everything - spared
    assert spared < everything


@pytest.mark.parametrize("kind", ["huggingface_adamw", "sgd", "adamw"])
def test_norms_are_found_by_type_and_not_by_name(kind: str) -> None:
    model = torch.nn.Sequential(
        Projector(4, [6, 3]), torch.nn.RMSNorm(3), torch.nn.GroupNorm(1, 3), torch.nn.Linear(3, 2)
    )
    matrices = {name for name, parameter in model.named_parameters() if parameter.dim() > 1}
    assert decayed(model, optimizer_for(model, kind)) == matrices and len(matrices) == 3


def test_the_parts_of_an_optimizer_multi_are_served() -> None:
    """The optimizer "multi" divides parameters by the patterns before its parts get them."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2), torch.nn.Linear(2, 2))
    parts = {"default": {"type": "adamw", "weight_decay": 0.1}}
    parts["spared"] = {"type": "sgd", "lr": 0.1, "weight_decay": 0.1}
    spared = [["^2.weight", UNDECAYED], {"optimizer_name": "spared", "weight_decay": 0.0}]
    params = {"type": "multi", "optimizers": parts, "parameter_groups": [spared]}
    named = [[name, parameter] for name, parameter in model.named_parameters()]
    with optimizing(model):
        several: Any = Optimizer.from_params(Params(params), model_parameters=named)
    assert isinstance(several.optimizers["spared"], torch.optim.SGD)
    assert decayed(model, several.optimizers["default"]) == {"0.weight"}
    assert decayed(model, several.optimizers["spared"]) == set()
    assert decayed(model, several) == {"0.weight"}


def test_groups_without_the_stand_in_are_unchanged() -> None:
    """Groups of older recipes keep their order, which optimizer states depend on."""
    model = transformer("flaubert")
    named = [(name, parameter) for name, parameter in model.named_parameters()]
    groups = [(["bias", "[Nn]orm\\d*\\.weight", "_norm\\.weight"], {"weight_decay": 0.0})]
    assert with_undecayed(groups, named) == groups
    params = {"type": "huggingface_adamw", "weight_decay": 0.1, "parameter_groups": groups}
    optimizer = Optimizer.from_params(Params(params), model_parameters=named)
    gains = {name for name in decayed(model, optimizer) if "norm" in name}
    assert gains == {f"layer_norm{which}.weight" for which in ("_emb", "1.0", "2.0")}


def test_the_stand_in_can_be_combined_with_patterns() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2))
    with optimizing(model):
        ((patterns, _),) = with_undecayed([(["x", UNDECAYED], {})], list(model.named_parameters()))
    assert patterns == ["x", r"^(?:0\.bias|1\.weight|1\.bias)$"]


def test_an_optimizer_for_an_unknown_model_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'@norms_and_biases' .*optimizing\(model\)"):
        with_undecayed([([UNDECAYED], {})], [])
