"""A static encoder begins with a table of its own texts, which are counted once."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.commands.find_learning_rate import find_learning_rate_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

import declutr
from declutr.archives.static_folder import read_static
from declutr.corpus import SourceError
from declutr.recipes import recipe_path
from declutr.runs.first_tables import FIRST_TABLE, use_first_table
from declutr.static_vectors.first_tables import table_of_texts
from declutr.system.cache_folder import STATIC_TABLES
from tests.conftest import make_documents


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of documents, with a cache of its own and no transformer chosen."""
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSFORMER_MODEL", raising=False)
    file = tmp_path / "docs.txt"
    file.write_text("\n".join(make_documents(8, 200)) + "\n\n")
    return file


def config(texts: Path | None, table: str = FIRST_TABLE, **reader: Any) -> dict[str, Any]:
    return {
        "dataset_reader": {"type": "declutr", "tokenizer": {"model_name": table}, **reader},
        "train_data_path": texts and str(texts),
        "model": {"text_field_embedder": {"model_name": table}},
    }


def test_the_table_is_that_of_the_command_and_is_made_once(texts: Path, capsys: Any) -> None:
    found = config(texts)
    assert use_first_table(found)
    place = found["model"]["text_field_embedder"]["model_name"]
    assert found["dataset_reader"]["tokenizer"]["model_name"] == place
    expected = table_of_texts(lambda: make_documents(8, 200))
    np.testing.assert_array_equal(read_static(Path(place)).vectors, expected.vectors)
    assert "256 numbers" in capsys.readouterr().err

    copy = texts.rename(texts.with_name("moved.txt"))  # the texts count, and not their place
    assert use_first_table(again := config(copy)) and "as before" in capsys.readouterr().err
    assert again["model"] == found["model"]
    assert not use_first_table(config(copy, "a-transformer"))


def test_a_table_that_was_removed_is_made_again_of_the_same_texts(texts: Path) -> None:
    use_first_table(found := config(texts))
    place = Path(found["model"]["text_field_embedder"]["model_name"])
    before = read_static(place).vectors
    shutil.rmtree(place)
    assert use_first_table(config(texts, str(place)))
    np.testing.assert_array_equal(read_static(place).vectors, before)
    shutil.rmtree(place)
    texts.write_text("\n".join(make_documents(8, 200, seed=1)))
    with pytest.raises(
        ConfigurationError, match=r"is gone or damaged, and the texts .* are no longer those"
    ):
        use_first_table(config(texts, str(place)))


@pytest.mark.parametrize("what", ["a bit", "cut off", "a file less", "description"])
def test_a_table_that_was_damaged_is_made_again(texts: Path, what: str, capsys: Any) -> None:
    """For a new run and for one that names it already; damage is found before training."""
    use_first_table(found := config(texts))
    place = Path(found["model"]["text_field_embedder"]["model_name"])
    before = read_static(place).vectors
    for again in (config(texts), config(texts, str(place))):
        weights = place / "model.safetensors"
        if what == "a bit":
            content = bytearray(weights.read_bytes())
            content[-2] ^= 1
            weights.write_bytes(content)
        elif what == "cut off":
            weights.write_bytes(weights.read_bytes()[:-8])
        elif what == "a file less":
            (place / "tokenizer.json").unlink()
        else:
            (place / "meta.json").write_text("{")
        capsys.readouterr()
        assert use_first_table(again) and again == found
        told = capsys.readouterr().err
        assert "made anew, for '" in told and ("No such file" in told) == (what == "a file less")
        np.testing.assert_array_equal(read_static(place).vectors, before)


def test_a_table_of_release_2_4_has_no_checksums(texts: Path, capsys: Any) -> None:
    use_first_table(found := config(texts))
    meta = Path(found["model"]["text_field_embedder"]["model_name"], "meta.json")
    content = json.loads(meta.read_text())
    assert set(content.pop("checksums")) >= {"model.safetensors", "tokenizer.json"}
    meta.write_text(json.dumps(content))
    capsys.readouterr()
    assert use_first_table(config(texts)) and "as before" in capsys.readouterr().err


def test_tables_of_earlier_layouts_are_kept_for_the_runs_that_began_with_them(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In release 2.4, tokens that never occur had vectors as long as others: texts count anew."""
    with monkeypatch.context() as earlier:
        earlier.setattr("declutr.runs.first_tables._LAYOUTS", (1,))
        use_first_table(begun := config(texts))
    old = Path(begun["model"]["text_field_embedder"]["model_name"])
    use_first_table(new := config(texts))
    assert new != begun
    for gone in (False, True):
        if gone:
            shutil.rmtree(old)
        use_first_table(again := config(texts, str(old)))
        assert again == begun and (old / "model.safetensors").is_file()
    (tmp_path / "config.json").write_text(json.dumps(begun))
    use_first_table(resumed := config(texts), run=tmp_path)
    assert resumed == begun


def test_a_run_goes_on_with_its_table_in_another_cache(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_first_table(begun := config(texts))
    (tmp_path / "config.json").write_text(json.dumps(begun))
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path / "other"))
    use_first_table(again := config(texts), run=tmp_path)
    assert again == begun and not (tmp_path / "other").exists()


def test_pairs_give_both_sides_and_no_labels(texts: Path) -> None:
    label = {"label": "entailment"}
    rows = [{"anchor": text, "positive": text[:99], **label} for text in make_documents(8, 200)]
    texts.write_text("\n".join(map(json.dumps, rows)))
    pairs = texts.rename(texts.with_suffix(".jsonl"))
    use_first_table(found := config(pairs, type="text_pairs", labels="class"))
    tokenizer = read_static(Path(found["model"]["text_field_embedder"]["model_name"])).tokenizer
    assert "entailment" not in tokenizer
    with pytest.raises(SourceError, match=r"docs.jsonl', line 1: no column 'premise'"):
        use_first_table(config(pairs, type="text_pairs", anchor="premise"))


def test_missing_and_few_texts_are_told(texts: Path) -> None:
    with pytest.raises(ConfigurationError, match="declutr train RECIPE docs"):
        use_first_table(config(None))
    texts.write_text("A short line.\n")
    with pytest.raises(ConfigurationError, match=r"at '.*docs.txt'. The texts have .* too few"):
        use_first_table(config(texts))
    with pytest.raises(ConfigurationError, match="made of columns with names"):
        use_first_table(config(texts, type="text_pairs", anchor=0))
    with pytest.raises(TypeError, match="'glue_rows' of this recipe has no texts"):
        use_first_table(config(texts, type="glue_rows"))


def test_recipes_of_static_encoders_name_it(texts: Path) -> None:
    params = Params.from_file(recipe_path("static_declutr")).params
    assert params["model"]["text_field_embedder"]["model_name"] == FIRST_TABLE


def test_rates_are_sought_with_it(texts: Path, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ConfigurationError, match="already exists"):
        find_learning_rate_model(Params(config(texts)), str(tmp_path))
    assert "First table" in capsys.readouterr().err


@pytest.mark.slow
def test_texts_in_memory_and_the_resumed_run(texts: Path, tmp_path: Path) -> None:
    """The run goes on after its table was removed, and its archive needs none."""
    given: dict[str, Any] = {"recipe": "static_declutr", "num_epochs": 1, "batch_size": 4}
    given |= {"max_span_len": 16, "min_span_len": 4, "output": tmp_path / "run"}
    first = declutr.train(make_documents(8, 200), **given)(["ka lo"])
    shutil.rmtree(tmp_path / "cache" / STATIC_TABLES)
    np.testing.assert_array_equal(declutr.Encoder(tmp_path / "run")(["ka lo"]), first)
    np.testing.assert_array_equal(declutr.train(make_documents(8, 200), **given)(["ka lo"]), first)
