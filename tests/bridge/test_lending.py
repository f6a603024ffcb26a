"""Modules import only with the names that are lent, which are removed afterwards."""

import importlib
import pickle
import sys
from types import ModuleType
from typing import Any

import pytest

from declutr.bridge import lending

# (module of AllenNLP, name that its import needs, switch)
CURED = [
    ("allennlp.data.image_loader", "torchvision", lending.torchvision),
    ("allennlp.modules.vision.grid_embedder", "torchvision", lending.torchvision),
    ("allennlp.modules.vision.region_detector", "torchvision", lending.torchvision),
    ("allennlp.nn.parallel.fairscale_fsdp_accelerator", "fairscale", lending.fairscale),
    ("allennlp.nn.checkpoint.fairscale_checkpoint_wrapper", "fairscale", lending.fairscale),
    ("allennlp.training.optimizers", "AdamW", lending.adamw),
    ("allennlp.common.push_to_hf", "HfFolder|Repository", lending.hub_names),
]


def offered(wanted: str) -> bool:
    """Return whether this environment has a name itself, so that it need not be lent."""
    import huggingface_hub
    import transformers

    if wanted == "AdamW":
        return hasattr(transformers, wanted)
    if wanted.startswith("Hf"):
        return all(hasattr(huggingface_hub, name) for name in wanted.split("|"))
    return importlib.util.find_spec(wanted) is not None


@pytest.mark.parametrize(("name", "wanted", "switch"), CURED)
def test_lent_names_make_the_import_work(name: str, wanted: str, switch: Any, bare: Any) -> None:
    if offered(wanted):
        pytest.skip(f"this environment offers {wanted}: there is nothing to lend")
    with pytest.raises((ImportError, AttributeError), match=wanted):
        bare(name)
    with switch():
        assert bare(name).__name__ == name


@pytest.mark.parametrize("package", ["torchvision", "fairscale"])
def test_stand_ins_are_gone_afterwards(package: str) -> None:
    importlib.import_module("allennlp.nn.parallel")
    importlib.import_module("allennlp.data.image_loader")
    for name, module in sys.modules.items():
        if name.partition(".")[0] == package:
            assert not isinstance(module, lending._StandIn)


def test_stand_ins_are_gone_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), lending.stand_in("no_such_package", {"a.b": ("C",)}):
        assert "no_such_package.a.b" in sys.modules
        raise ZeroDivisionError
    assert not [name for name in sys.modules if name.startswith("no_such_package")]


def test_transformers_does_not_take_a_stand_in_for_the_package() -> None:
    from transformers.utils import is_torchvision_available

    expected = importlib.util.find_spec("torchvision") is not None
    with lending.torchvision():
        pass
    assert is_torchvision_available() is expected


def test_a_package_that_imports_is_left_alone() -> None:
    before = sys.modules["json"]
    with lending.stand_in("json", {"decoder": ("JSONDecoder",)}):
        import json

        assert json is before and json.loads("1") == 1


def test_a_broken_package_is_put_back(monkeypatch: Any, tmp_path: Any) -> None:
    folder = tmp_path / "halfbroken"
    folder.mkdir()
    (folder / "__init__.py").write_text("from halfbroken import part\nraise OSError('built for')")
    (folder / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with lending.stand_in("halfbroken", {"ops": ("F",)}):
        assert isinstance(sys.modules["halfbroken"], lending._StandIn)
    assert not isinstance(sys.modules.get("halfbroken"), lending._StandIn)
    assert "halfbroken.ops" not in sys.modules


def test_absent_names_can_be_subclassed_but_not_used() -> None:
    base = lending.absent("fairscale.nn.FullyShardedDataParallel")

    class Sub(base):  # type: ignore[misc, valid-type]
        pass

    for cls in (base, Sub):
        with pytest.raises(ImportError, match=r"fairscale.nn.FullyShardedDataParallel.*Install"):
            cls(1, a=2)
        with pytest.raises(AttributeError, match=r"FullyShardedDataParallel.get_token"):
            cls.get_token()
    assert not hasattr(base, "__iter__")


def test_using_an_absent_name_says_what_is_missing() -> None:
    from allennlp.modules.vision.grid_embedder import ResnetBackbone
    from allennlp.nn.checkpoint import FairScaleCheckpointWrapper

    if not offered("torchvision"):
        with pytest.raises(AttributeError, match=r"torchvision.models.*not installed"):
            ResnetBackbone()
    if not offered("fairscale"):
        with pytest.raises(ImportError, match=r"fairscale.nn.checkpoint.*not installed"):
            FairScaleCheckpointWrapper().wrap_module(None)


def test_only_missing_names_are_lent_and_are_removed_afterwards() -> None:
    module = ModuleType("lender")
    module.there = 1  # type: ignore[attr-defined]
    sys.modules["lender"] = module
    try:
        with lending.lent_names("lender", {"there": lambda: 2, "missing": lambda: 3}):
            assert (module.there, module.missing) == (1, 3)
        assert not hasattr(module, "missing") and module.there == 1
    finally:
        del sys.modules["lender"]


def test_huggingface_adamw_is_the_optimizer_of_the_bridge() -> None:
    import torch
    import transformers
    from allennlp.training.optimizers import HuggingfaceAdamWOptimizer, Optimizer

    from declutr.bridge.adamw import AdamW

    if not hasattr(transformers, "AdamW"):
        assert issubclass(HuggingfaceAdamWOptimizer, AdamW)
    weight = torch.nn.Parameter(torch.ones(2))
    built = Optimizer.by_name("huggingface_adamw")([("w", weight)], correct_bias=False, lr=0.5)
    assert built.defaults["correct_bias"] is False and built.defaults["eps"] == 1e-8
    assert pickle.loads(pickle.dumps(type(built))) is HuggingfaceAdamWOptimizer
