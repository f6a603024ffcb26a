"""Files of earlier releases can be opened, and their interrupted runs can be resumed.

The files under `tests/fixtures/release_*` were written by `tests/release_files.py`.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from transformers import AutoTokenizer

import declutr.plugin  # noqa: F401
from declutr import Encoder, __version__
from declutr.corpus import tokenized as corpus
from declutr.inference.bulk import StoredEmbeddings
from declutr.search import SearchIndex
from tests.release_files import QUERY, TEXTS, command

RELEASES = sorted(Path(__file__).parent.glob("fixtures/release_*"))


@pytest.fixture(params=RELEASES, ids=lambda release: release.name)
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a copy of a release's files as working directory, because they have relative paths."""
    folder = tmp_path / "files"
    shutil.copytree(request.param, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DECLUTR_CACHE", "cache")
    monkeypatch.setenv("TRANSFORMER_MODEL", "transformer")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["declutr", "mixed_layers", "moving_average", "selected", "scd", "reclaim"]
)
def test_a_killed_run_continues_like_the_release_that_began_it(
    name: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the updates of weights with those of the release that began the run.

    They are not compared to the bit, because the processor may be another. With another optimizer
    or objective the updates would differ by more than a tenth.
    """

    def refuse(*_: object) -> None:
        raise AssertionError("The corpus is tokenised anew.")

    begun_with = json.loads(next(Path("cache").glob("*/meta.json")).read_text())["tokenizer"]
    if type(AutoTokenizer.from_pretrained("transformer")).__name__ == begun_with.split(":")[0]:
        monkeypatch.setattr(corpus, "_tokenize", refuse)  # transformers 4 has other names
    killed, whole = files / "runs" / name / "killed", files / "runs" / name / "whole"
    start = weights(next(killed.glob("model_state_*.th")))
    train_model(Params.from_file(str(killed / "config.json")), str(killed), recover=True)

    def moved(state: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([(state[key].double() - start[key]).flatten() for key in sorted(start)])

    for file in ("model_state_e2_b0.th", "best.th"):
        if (whole / file).exists():
            expected, found = moved(weights(whole / file)), moved(weights(killed / file))
            assert (found - expected).norm() <= 0.02 * expected.norm(), file
    if name == "mixed_layers":  # of the objective it was begun with
        assert json.loads((killed / "run.json").read_text())["loss"]["mlm_head_reads"] == (
            "mix of layers"
        )
    metrics = [json.loads((run / "metrics.json").read_text()) for run in (whole, killed)]
    shared = [key for key in metrics[0] if key.startswith(("validation", "best_epoch"))]
    assert shared
    for key in shared:
        assert metrics[1][key] == pytest.approx(metrics[0][key], rel=1e-2, abs=1e-2), key


def test_a_run_whose_recipe_has_changed_since_is_told_how_it_goes_on(files: Path) -> None:
    run = files / "runs" / "scd" / "killed"
    changes = {"train_data_path": "sentences.txt"}
    told = r"max_length is 32, and was not given; .* \(and \d+ more\)\. .* its own configuration: "
    with pytest.raises(ConfigurationError, match=f"{told}train {run}/config.json -s {run} --rec"):
        train_model(Params.from_file("scd", changes), str(run), recover=True)


def weights(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a state that have a floating-point dtype."""
    state = torch.load(file, weights_only=True)
    return {key: value for key, value in state.items() if value.is_floating_point()}


@pytest.mark.parametrize("place", ["model", "model/model.tar.gz", "export"])
def test_a_model_embeds_as_it_did(place: str, files: Path) -> None:
    rows = Encoder(place, device="cpu", dtype="float32")(TEXTS)
    assert np.allclose(rows, np.load("embeddings.npy"), atol=1e-5)


@pytest.mark.parametrize("kind", ["npy", "parquet", "jsonl"])
def test_embeddings_are_read(kind: str, files: Path) -> None:
    stored = StoredEmbeddings(Path("embeddings", kind))
    assert np.allclose(stored[: len(TEXTS)], np.load("embeddings.npy"), atol=1e-5)


def test_an_interrupted_embedding_is_resumed(files: Path) -> None:
    partial, whole = Path("embeddings/partial"), Path("embeddings/npy")
    kept = {shard: shard.stat().st_mtime_ns for shard in partial.glob("embeddings-*.npy")}
    options = ["--shard-rows", "4", "--dtype", "float32", "--quiet"]
    command("embed", "model", "texts.txt", "-o", str(partial), *options)
    assert np.allclose(StoredEmbeddings(partial)[:], StoredEmbeddings(whole)[:], atol=1e-5)
    assert kept and all(shard.stat().st_mtime_ns == time for shard, time in kept.items())


@pytest.mark.parametrize("name", ["numpy", "faiss", "lists"])
def test_an_index_finds_the_same_lines(name: str, files: Path) -> None:
    if name != "numpy":
        pytest.importorskip("faiss")
    hits = SearchIndex(Path("index", name), model="model", device="cpu").search(QUERY, 5)
    assert [hit.row for hit in hits] == json.loads(Path("hits.json").read_text())[name]


@pytest.mark.slow
def test_results_of_an_evaluation_are_not_mixed_with_new_ones(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores of earlier releases may be computed differently, so the command must refuse."""
    before = Path("evaluation/results.json").read_text()
    again = ["evaluate-embeddings", "SentEval", "model", "-o", "evaluation"]
    options = ["--tasks", "STS-B", "--no-plots"]
    with pytest.raises(SystemExit):
        command(*again, *options)
    release = json.loads(before)["versions"]["declutr"]
    assert f"made otherwise: declutr {release} there, {__version__} now" in capsys.readouterr().err
    assert Path("evaluation/results.json").read_text() == before
    command(*again, *options, "--overwrite")
    scores = json.loads(Path("evaluation/results.json").read_text())
    assert scores["versions"]["declutr"] == __version__
