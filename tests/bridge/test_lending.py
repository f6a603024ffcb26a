"""Modules import only with the names that are lent, which are removed afterwards."""

import builtins
import importlib
import importlib.util
import pickle
import sys
from types import ModuleType
from typing import Any

import pytest

from declutr.bridge import lending, publishing

# (module of AllenNLP, name that its import needs, switch)
CURED = [
    ("allennlp.data.image_loader", "torchvision", lending.torchvision),
    ("allennlp.modules.vision.grid_embedder", "torchvision", lending.torchvision),
    ("allennlp.modules.vision.region_detector", "torchvision", lending.torchvision),
    ("allennlp.nn.parallel.fairscale_fsdp_accelerator", "fairscale", lending.fairscale),
    ("allennlp.nn.checkpoint.fairscale_checkpoint_wrapper", "fairscale", lending.fairscale),
    ("allennlp.training.optimizers", "AdamW", lending.adamw),
    ("allennlp.common.push_to_hf", "HfFolder|Repository", publishing.hub_names),
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


def run(code: str, module: str = "allennlp.some.module") -> dict[str, Any]:
    """Run code as the body of a module of this name and return its names."""
    scope: dict[str, Any] = {"__name__": module}
    exec(code, scope)
    return scope


ALL_FORMS = """
import no_such_package
import no_such_package.a.b
import no_such_package.a.b as inner
from no_such_package.a.b import C
from no_such_package import a
"""


def test_stand_ins_are_found_by_every_form_of_import() -> None:
    with lending.stand_in("no_such_package", {"a.b": ("C",)}):
        found = run(ALL_FORMS)
    assert found["no_such_package"].a is found["a"] and found["a"].b is found["inner"]
    assert found["inner"].C is found["C"] and not isinstance(1, found["C"])


def test_only_modules_of_allennlp_find_stand_ins() -> None:
    with lending.stand_in("no_such_package", {"a.b": ("C",)}, how="Install it so."):
        for module in ("thirdparty.allennlp", "allennlpx", "__main__"):
            with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
                run(ALL_FORMS, module)
        assert importlib.util.find_spec("no_such_package") is None
        assert not [name for name in sys.modules if name.startswith("no_such_package")]
        with pytest.raises(lending.MissingPackage, match=r"no_such_package\.x .*Install it so\."):
            run("import no_such_package.x")


def test_stand_ins_are_gone_after_an_error_too() -> None:
    before = builtins.__import__
    with pytest.raises(ZeroDivisionError), lending.stand_in("no_such_package", {}):
        assert builtins.__import__ is not before
        raise ZeroDivisionError
    assert builtins.__import__ is before
    with pytest.raises(ModuleNotFoundError):
        run("import no_such_package")


def test_stand_ins_may_end_in_any_order() -> None:
    before = builtins.__import__
    one, other = (lending.stand_in(f"no_such_{name}", {}) for name in ("one", "other"))
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    run("import no_such_other")
    with pytest.raises(ModuleNotFoundError):
        run("import no_such_one")
    other.__exit__(None, None, None)
    assert builtins.__import__ is before


def test_values_can_be_given_for_names() -> None:
    layout = {"": ("f", "g"), "a": ("f",)}
    with lending.stand_in("no_such_package", layout, given={"f": len, "a.f": max}):
        found = run("from no_such_package import f, g; import no_such_package.a as a")
    assert found["f"] is len and found["a"].f is max
    with pytest.raises(lending.MissingPackage, match=r"no_such_package\.g"):
        found["g"]()


def test_a_package_that_imports_is_left_alone() -> None:
    before = sys.modules["json"]
    with lending.stand_in("json", {"decoder": ("JSONDecoder",)}):
        import json

        assert json is before and json.loads("1") == 1


def test_a_broken_package_stays_what_it_is_for_others(monkeypatch: Any, tmp_path: Any) -> None:
    folder = tmp_path / "halfbroken"
    folder.mkdir()
    (folder / "__init__.py").write_text("from halfbroken import part\nraise OSError('built for')")
    (folder / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with lending.stand_in("halfbroken", {"ops": ("F",)}):
        assert isinstance(run("import halfbroken")["halfbroken"], lending._StandIn)
        with pytest.raises(OSError, match="built for"):
            run("import halfbroken", "another")
    assert "halfbroken" not in sys.modules and "halfbroken.ops" not in sys.modules


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


def test_a_wrapper_of_the_import_that_stays_does_not_recurse() -> None:
    """Tools that watch imports may replace `__import__` while stand-ins are lent."""
    before = builtins.__import__
    try:
        with lending.stand_in("not_there_at_all", {}):
            lent = builtins.__import__

            def watched(*args: object, **kwargs: object) -> object:
                return lent(*args, **kwargs)

            builtins.__import__ = watched
        with lending.stand_in("not_there_at_all", {}):
            import colorsys
        assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)
    finally:
        builtins.__import__, lending._is_in_place = before, False
