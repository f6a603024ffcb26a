"""Deferred libraries are not imported while AllenNLP starts, but when it uses them."""

import gc
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from declutr.bridge import deferral


@pytest.fixture
def package(tmp_path: Path, monkeypatch: Any) -> str:
    """Make a package with a submodule that its own `__init__` does not import."""
    folder = tmp_path / "putoff"
    folder.mkdir()
    code = "def double(x): return 2 * x\nclass C: size = 3\n"
    (folder / "__init__.py").write_text(code)
    (folder / "part.py").write_text("answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("putoff", "putoff.part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "putoff"


def test_a_package_is_imported_when_it_is_used(package: str) -> None:
    with deferral.deferred(package):
        import putoff  # type: ignore[import-not-found]
        from putoff import C, double
    assert package not in sys.modules
    assert double(4) == 8 and C.size == 3  # type: ignore[attr-defined]
    assert package in sys.modules
    assert putoff.part.answer == 42  # a submodule, as scikit-learn gives it


def test_it_can_be_used_inside_the_context_too(package: str) -> None:
    with deferral.deferred(package):
        from putoff import double

        assert double(1) == 2
    assert sys.modules[package].double(1) == 2


def test_classes_can_be_derived_from_its_names_and_asked_for(package: str) -> None:
    """Another thread may import, within the context, what uses the package at once."""
    with deferral.deferred(package):
        from putoff import C

        class Derived(C):  # type: ignore[misc, valid-type]
            pass

        assert Derived.size == 3 and issubclass(Derived, C)
        assert isinstance(Derived(), C) and not isinstance(3, C)
    assert Derived.__mro__[1] is sys.modules[package].C


def test_a_module_in_a_package_is_deferred_alone(package: str) -> None:
    with deferral.deferred(f"{package}.part"):
        import putoff.part as part
        from putoff.part import answer

        assert sys.modules[package].C.size == 3  # the package itself is there
    assert f"{package}.part" not in sys.modules
    assert part.answer == 42 and f"{package}.part" in sys.modules
    with pytest.raises(TypeError, match="'int' object is not callable"):
        answer()


def test_a_module_of_a_deferred_package_can_be_imported(package: str) -> None:
    with deferral.deferred(package):
        from putoff import C

        assert isinstance(sys.modules[package], deferral._Deferred)
        import putoff.part

        assert putoff.part.answer == 42 and putoff.double(1) == 2
    assert C.size == 3  # type: ignore[attr-defined]
    assert sys.modules[package].part is sys.modules[f"{package}.part"]


def test_a_name_of_a_module_of_a_deferred_package_can_be_imported(package: str) -> None:
    with deferral.deferred(package):
        from putoff.part import answer
    assert answer == 42
    del sys.modules[package], sys.modules[f"{package}.part"]
    with deferral.deferred(package):
        assert importlib.util.find_spec(f"{package}.part") is not None
    del sys.modules[package]
    with deferral.deferred(package), pytest.raises(ModuleNotFoundError, match=r"putoff\.nothing"):
        importlib.import_module(f"{package}.nothing")


def test_a_missing_name_is_reported_by_the_package_itself(package: str) -> None:
    with deferral.deferred(package):
        import putoff
    with pytest.raises(AttributeError, match=r"module 'putoff' has no attribute 'nothing'"):
        _ = putoff.nothing
    with deferral.deferred("no_such_package"):
        import no_such_package  # type: ignore[import-not-found]
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        no_such_package.anything()


def test_a_package_that_is_imported_is_left_alone() -> None:
    import json

    with deferral.deferred("json"):
        assert sys.modules["json"] is json


def test_nothing_is_left_behind_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), deferral.deferred("no_such_package"):
        raise ZeroDivisionError
    assert "no_such_package" not in sys.modules


# It imports scikit-learn itself, in its module of generation, and scipy.
OF_TRANSFORMERS_4 = transformers.__version__.startswith("4.")


@pytest.mark.slow
def test_an_encoder_and_allennlp_start_without_the_deferred_libraries() -> None:
    code = (
        "import sys, declutr.inference.transformer_loading\n"
        "import transformers.models.roberta.modeling_roberta, transformers.generation.utils\n"
        "from transformers.loss.loss_for_object_detection import linear_sum_assignment\n"
        f"theirs = set(sys.modules) if {OF_TRANSFORMERS_4} else set()\n"
        "import allennlp.commands\n"
        "from allennlp.common.util import import_module_and_submodules\n"
        "for part in ('fairness', 'training', 'models'):\n"
        "    import_module_and_submodules(f'allennlp.{part}')\n"
        "import declutr.plugin\n"
        "names = {'nltk', 'sklearn', 'pandas', 'scipy.stats', 'scipy.optimize'}\n"
        "print(sorted(names & set(sys.modules) - theirs))\n"
        "print(*linear_sum_assignment([[2, 1], [0, 2]])[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "1", "0"]


def test_the_metric_that_needs_scikit_learn_finds_it() -> None:
    from allennlp.training.metrics import Auc

    metric = Auc()
    metric(torch.tensor([0.9, 0.8, 0.3, 0.1]), torch.tensor([1, 0, 1, 0]))
    assert metric.get_metric(reset=True) == pytest.approx(0.75)


def test_the_metric_that_needs_scipy_finds_it() -> None:
    from allennlp.training.metrics import SpearmanCorrelation

    metric = SpearmanCorrelation()
    metric(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]))
    assert metric.get_metric(reset=True) == pytest.approx(0.5)


def test_the_mitigation_that_needs_scikit_learn_finds_it() -> None:
    from allennlp.fairness.bias_direction import ClassificationNormalBiasDirection

    left, right = torch.tensor([[1.0, 0.0], [2.0, 0.1]]), torch.tensor([[-1.0, 0.0], [-2.0, 0.1]])
    direction = ClassificationNormalBiasDirection()(left, right)
    assert abs(direction[0]) == pytest.approx(1.0, abs=0.05)


def test_garbage_is_collected_only_after_the_imports() -> None:
    gc.unfreeze()  # the tests freeze, as does the command `declutr`
    assert gc.isenabled()
    with deferral.garbage():
        assert not gc.isenabled()
        with deferral.garbage():
            pass
        assert not gc.isenabled()  # whoever switched it off switches it on
        made = [[] for _ in range(5000)]
    assert gc.isenabled() and gc.get_freeze_count() == 0 and len(made) == 5000
    assert gc.get_count()[0] < 5000  # not young any more
    with pytest.raises(ZeroDivisionError), deferral.garbage():
        raise ZeroDivisionError
    assert gc.isenabled()
    gc.freeze()


def test_what_was_frozen_stays_frozen() -> None:
    gc.freeze()
    count = gc.get_freeze_count()
    with deferral.garbage():
        assert gc.isenabled()
    assert gc.get_freeze_count() == count > 0
