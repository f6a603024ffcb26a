"""All registered names of configurations, archives and commands exist, and are imported lazily."""

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import transformers
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model

import declutr
from declutr import components
from declutr.bridge.component_names import SUBCOMMANDS
from declutr.objectives import Objective
from tests.forked_commands import ForkedCommand
from tests.plugins_of_others import pipeline

pytestmark = pytest.mark.slow

PACKAGE = Path(declutr.__file__).parent

RELEASED = {
    # The names registered in release 1.5.0, by the name of the base class.
    "Augmentation": "callable eda",
    "Checkpointer": "atomic",
    "DataLoader": "declutr",
    "DatasetReader": "augmented declutr glue image_text sentences text_lines text_pairs",
    "DdpAccelerator": "fsdp",
    "Head": "projector tanh",
    "Miner": "pair_margin pml pytorch_metric_learning",
    "Model": "declutr image_text reclaim text_vae",
    "Objective": (
        "align_uniform barlow_twins byol contrastive cosine_regression cross_batch_memory "
        "debiased_contrastive hard_negative info_nce instance_discrimination is_bert "
        "lifted_structured mochi moco n_pair nce nt_xent pair_softmax pml "
        "pytorch_metric_learning quick_thoughts reclaim scd soft_nearest_neighbours sup_con swav "
        "triplet weighted_sum"
    ),
    "Predictor": "declutr reclaim",
    "Seq2VecEncoder": "declutr ngram_convolutions",
    "Subcommand": (
        "embed evaluate-embeddings export index sample-spans search split-sentences whiten"
    ),
    "TextFieldEmbedder": "declutr mlm",
    "TokenEmbedder": "declutr pretrained_transformer_mlm",
    "TokenIndexer": "declutr",
    "Tokenizer": "declutr",
    "TrainerCallback": "evaluate_embeddings exact_resume run_record",
    "Views": "cutoff dropout dropout_rates levels spans",
}
CONSTRUCTORS = {
    ("Predictor", "reclaim"): "of_task_model",
    ("TokenIndexer", "declutr"): "from_archive",
    ("Tokenizer", "declutr"): "from_archive",
    ("Trainer", "declutr"): "from_partial_objects",
    ("Vocabulary", "scan"): "from_json",
}
MOST_MODULES = 107
"""How many modules of this package opening an archive may import, 33 of them the bridge's; 1.5.0
imported 167."""


def ran(code: str, **environment: str) -> list[str]:
    """Return the words that Python code prints in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def forked(code: str) -> list[str]:
    """Return the words that Python code prints where nothing but the plugin has been imported."""
    command = ForkedCommand(textwrap.dedent(code), environment=dict(os.environ), program="-c")
    return command.finished().split()


def base_of(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def names_of(base: str) -> dict[str, str]:
    (names,) = (
        names for place, names in components.COMPONENTS.items() if place.endswith(f":{base}")
    )
    return names


@pytest.mark.parametrize("base", RELEASED)
def test_names_of_release_1_5_0_are_there(base: str) -> None:
    assert set(RELEASED[base].split()) <= set(names_of(base))


@pytest.mark.parametrize("place", components.COMPONENTS)
def test_every_name_finds_its_class(place: str) -> None:
    base = base_of(place)
    for name, where in components.COMPONENTS[place].items():
        cls, constructor = base.resolve_class_name(name)
        assert f"{cls.__module__}:{cls.__qualname__}" == where and issubclass(cls, base)
        assert constructor == CONSTRUCTORS.get((base.__name__, name))
        assert name in base.list_available() and base.by_name(name)


def test_the_table_equals_the_registered_classes() -> None:
    """Import each module that registers something, and compare the names with the table."""
    modules = [
        module.name
        for module in pkgutil.walk_packages([str(PACKAGE)], "declutr.")
        if not module.ispkg
    ]
    registering = [name for name in modules if ".register(" in source(name)]
    assert len(registering) > 40
    for name in registering:
        importlib.import_module(name)
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for base, names in Registrable._registry.items():
        for name, (cls, _) in getattr(names, "imported", names).items():
            if getattr(cls, "__module__", "").startswith("declutr."):
                place = f"{base.__module__}:{base.__qualname__}"
                found[place][name] = f"{cls.__module__}:{cls.__qualname__}"
    assert found == components.COMPONENTS
    calls = sum(len(re.findall(r"^@\w+\.register\(", source(name), re.M)) for name in registering)
    of_commands = len(SUBCOMMANDS)  # registered in a loop
    assert calls == sum(map(len, components.COMPONENTS.values())) - of_commands


def source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text()


def test_names_and_commands_are_known_without_their_modules() -> None:
    words = forked("""
        import sys, declutr.plugin
        from allennlp.commands import Subcommand
        [Subcommand.by_name(name) for name in Subcommand.list_available()]
        assert "declutr.commands.whiten" in sys.modules
        heavy = ("data", "models", "modules", "objectives", "transformer", "evaluation", "search")
        rooms = tuple(f"declutr.{room}." for room in heavy)
        print(*(name for name in sys.modules if name.startswith(rooms)))
        from allennlp.models import Model
        assert {"declutr", "reclaim"} <= set(Model.list_available())
        print(*(name for name in sys.modules if name.startswith("declutr.models")))
        assert Model.by_name("declutr").__name__ == "DeCLUTR"
        from declutr.objectives import Objective
        print(*(name for name in sys.modules if name.startswith("pytorch_metric_learning")))
        from declutr.components import registered_name
        from declutr.objectives import NTXent, PytorchMetricLearning
        assert registered_name(Objective, NTXent) == "nt_xent"
        assert registered_name(Objective, PytorchMetricLearning) == "pytorch_metric_learning"
        assert registered_name(Objective, int) is None
        print(*(name for name in sys.modules if name.startswith("declutr.objectives.memories")))
        assert "reclaim" in Objective.list_available()
        assert Objective.by_name("reclaim").__name__ == "Reclaim"
        from allennlp.training.trainer import Trainer
        assert Trainer.by_name("declutr").__self__.__name__ == "DeCLUTRTrainer"
    """)
    assert words == []


def test_opening_an_archive_imports_what_it_names(trained: Path) -> None:
    words = ran(f"""
        import sys, declutr
        assert declutr.Encoder({str(trained)!r}, device="cpu")(["ka lo mi"]).any()
        print(*(name for name in sys.modules if name.partition(".")[0] == "declutr"))
        print(*{{"pytorch_metric_learning", "scipy.stats", "nltk"}} & set(sys.modules))
    """)
    assert "pytorch_metric_learning" not in words
    if int(transformers.__version__.split(".")[0]) >= 5:  # transformers 4 imports these itself
        assert not {"scipy.stats", "nltk"} & set(words)
    words = [word for word in words if word.startswith("declutr")]
    rooms = ("training", "task_models", "commands", "search", "export", "pretrained_parts")
    others = [
        name for name in words if name.startswith(tuple(f"declutr.{room}." for room in rooms))
    ]
    assert others == [] and len(words) <= MOST_MODULES, words


@pytest.mark.long
@pytest.mark.parametrize("first", ["declutr.plugin", "declutr.models.declutr", "declutr.model"])
def test_modules_may_be_imported_in_any_order(first: str) -> None:
    words = ran(f"""
        import {first}
        import declutr.plugin, declutr.models.declutr, declutr.models.reclaim.model
        from allennlp.models import Model
        from declutr.objectives import Objective
        assert Model.by_name("declutr") is declutr.models.declutr.DeCLUTR
        assert Objective.by_name("nt_xent").__name__ == "NTXent"
    """)
    assert words == []


def test_the_package_can_be_included() -> None:
    """Import the package as `allennlp ... --include-package declutr` does."""
    words = forked("""
        import declutr.plugin
        from allennlp.common.util import import_module_and_submodules
        from allennlp.models import Model
        import_module_and_submodules("declutr", exclude={"declutr.search", "declutr.export"})
        print(Model.by_name("declutr").__name__)
    """)
    assert words == ["DeCLUTR"]


def test_names_are_registered_without_the_bridge() -> None:
    """AllenNLP is as it is, until it is given the two names of what the plugin imports of it."""
    *error, name, known = ran(
        """
        import declutr
        try:
            import allennlp.training.optimizers
        except Exception as error:
            print(error)
        import huggingface_hub
        huggingface_hub.HfFolder = huggingface_hub.Repository = object
        import declutr.plugin
        from declutr.objectives import Objective
        print(Objective.by_name("nt_xent").__name__, "info_nce" in Objective.list_available())
        """,
        DECLUTR_BRIDGE="0",
    )
    assert any(lacking in " ".join(error) for lacking in ("HfFolder", "torchvision", "AdamW"))
    assert (name, known) == ("NTXent", "True")


def test_a_pipeline_without_this_package_imports_the_bridge_alone(tmp_path: Path) -> None:
    config = pipeline(tmp_path)
    config["dataset_reader"] |= {"type": "text_classification_json", "tokenizer": "whitespace"}
    config["dataset_reader"]["token_indexers"] = {"tokens": {"type": "single_id"}}
    embedder = {"token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}}
    config["model"] |= {"type": "basic_classifier", "text_field_embedder": embedder}
    config["model"]["seq2vec_encoder"] = {"type": "boe", "embedding_dim": 4}
    config["data_loader"] = {"batch_size": 2}
    groups = [[["_classification_layer"], {"lr": 0.1}]]
    optimizer = {"type": "adam", "parameter_groups": groups}
    config["trainer"] = {"optimizer": optimizer, "num_epochs": 1, "cuda_device": -1}
    recipe = tmp_path / "training_config" / "recipe.jsonnet"  # a folder that many packages have
    recipe.parent.mkdir()
    recipe.write_text(json.dumps(config))
    words = ran(f"""
        import contextlib, sys
        from allennlp.commands import main
        sys.argv = ["allennlp", "train", {str(recipe)!r}]
        sys.argv += ["-s", {str(tmp_path / "run")!r}]
        with contextlib.redirect_stdout(sys.stderr):
            main()
        print(*(name for name in sys.modules if name.partition(".")[0] == "declutr"))
        print(*{{"pytorch_metric_learning"}} & set(sys.modules))
    """)
    assert (tmp_path / "run" / "model.tar.gz").is_file()
    others = [name for name in words if not name.startswith("declutr.bridge")]
    assert sorted(others) == ["declutr", "declutr._version"]


def test_without_the_plugin_allennlp_knows_no_name() -> None:
    words = ran(
        """
        import declutr, sys
        from allennlp.common.plugins import discover_plugins
        from allennlp.models import Model
        list(discover_plugins())
        print("declutr" in Model.list_available(), Model.register.__module__)
        print(*(name for name in sys.modules if name == "declutr.plugin"))
        """,
        DECLUTR_PLUGIN="0",
    )
    assert words == ["False", "allennlp.common.registrable"]


def test_threads_that_ask_for_many_names_at_once() -> None:
    words = forked("""
        import threading, declutr.plugin
        from allennlp.data import DatasetReader, Tokenizer, TokenIndexer
        from allennlp.models import Model
        from allennlp.modules import Seq2VecEncoder, TokenEmbedder
        from declutr.objectives import Objective
        bases = [DatasetReader, Tokenizer, TokenIndexer, Model, Seq2VecEncoder, TokenEmbedder] * 2
        asked = [(base, "declutr") for base in bases]
        asked += [(Objective, name) for name in ("reclaim", "moco", "mochi", "pml", "nt_xent")]
        begin = threading.Barrier(len(asked))
        def ask(base, name):
            begin.wait()
            assert issubclass(base.resolve_class_name(name)[0], base)
            got.append(name)
        got = []
        threads = [threading.Thread(target=ask, args=pair) for pair in asked]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        print(*got)
    """)
    assert sorted(words) == sorted(
        ["declutr"] * 12 + ["reclaim", "moco", "mochi", "pml", "nt_xent"]
    )


def test_an_unknown_name_gives_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'nt_xent'"):
        Objective.by_name("nt-xent")
    with pytest.raises(ConfigurationError, match="'nonsense' is not a registered name for 'Model'"):
        Model.by_name("nonsense")


def test_objectives_are_imported_on_demand() -> None:
    """The names imported for type checkers are the names found at run time."""
    import declutr.objectives as room

    checked = re.findall(r"from ([\w.]+) import \*", source(room.__name__))
    assert checked == [f"{room.__name__}.{module}" for module in room._NAMES]
    for module, names in zip(checked, room._NAMES.values(), strict=True):
        for name in names.split():
            found = room.__getattr__(name)
            assert found is getattr(importlib.import_module(module), name)
            assert found.__module__ == module, name
    assert set(room.__all__) <= set(dir(room))
    assert callable(room.jensen_shannon)
    with pytest.raises(AttributeError, match=r"'declutr\.objectives' has no attribute 'nothing'"):
        _ = room.nothing
