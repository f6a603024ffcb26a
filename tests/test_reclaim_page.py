"""docs/RECLAIM.md: a model of one's own is trained and opened as written; recipes and defaults."""

import inspect
import random
import re
from pathlib import Path

import pytest
import torch
from allennlp.commands.train import train_model_from_file
from allennlp.models import load_archive

import declutr.plugin  # noqa: F401
from declutr.models.reclaim.model import ReclaimModel
from declutr.objectives.memories.reclaim import Reclaim
from declutr.recipes import recipe_names
from tests.conftest import make_documents

PAGE = (Path(__file__).parent.parent / "docs" / "RECLAIM.md").read_text()


def code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def write_rows(file: Path, count: int) -> None:
    """Pairs of texts; half of them are the same."""
    rng = random.Random(count)
    texts = [" ".join(text.split()[:8]) for text in make_documents(count, 10)]
    rows = ["first\tsecond\tsame"]
    for number, text in enumerate(texts):
        same = number % 2
        rows.append(f"{text}\t{text if same else rng.choice(texts)}\t{same}")
    file.write_text("\n".join(rows) + "\n")


@pytest.mark.slow
def test_a_model_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "train.tsv", 128)
    write_rows(tmp_path / "dev.tsv", 32)
    model_code, loading = code("python")
    (recipe,) = code("jsonnet")
    Path("recipe.jsonnet").write_text(recipe)
    names: dict = {}
    exec(compile(model_code, "my_model.py", "exec"), names)

    trained = train_model_from_file(
        "recipe.jsonnet", "output", overrides={"trainer.cuda_device": -1}
    )
    assert isinstance(trained, ReclaimModel)
    visited = trained._objective.u_bank.visited
    assert visited[:128].all() and not visited[128:].any()

    exec(compile(loading, "docs/RECLAIM.md", "exec"), names)
    assert type(names["bare"]) is names["Matcher"]
    whole = load_archive("output").model
    for name, value in names["bare"].state_dict().items():
        assert torch.equal(value, whole.model.state_dict()[name]), name


def test_keys_and_defaults_are_true() -> None:
    parameters = inspect.signature(Reclaim).parameters
    keys = set(re.findall(r"^\| `([a-z_]+)[:`]", PAGE.split("## Memory")[1].split("##")[0], re.M))
    assert keys == {"storage", "precision", "search"} and keys <= set(parameters)
    for key, value in re.findall(r"`([a-z_]+)` \(([\d,]+)\)", PAGE):
        assert parameters[key].default == int(value.replace(",", "")), key
    assert "`momentum` 0.5" in PAGE and parameters["momentum"].default == 0.5


def test_every_recipe_is_listed() -> None:
    section = PAGE.split("## The recipes")[1].split("##")[0]
    listed = set(re.findall(r"`(?:reclaim/ablations/)?([a-z_0-9.]+)`", section))
    listed |= {f"negatives{name}" for name in listed if re.fullmatch(r"_\d+", name)}
    own = {name.rpartition("/")[2] for name in recipe_names() if "reclaim" in name}
    assert own and own <= listed
