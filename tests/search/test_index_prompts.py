"""Lines and queries are embedded with the prompts that the model names for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from declutr.inference.bulk.manifest import MANIFEST
from declutr.search import SearchError, SearchIndex, build_index
from tests.search.fakes import FakeEncoder, PromptedEncoder

E5 = {"query": "q: ", "passage": "p: "}
LINES = ["w1 w2", "", "w3"]


def build(encoder: FakeEncoder, folder: Path, **settings: Any) -> SearchIndex:
    build_index(encoder, LINES, folder, backend="numpy", **settings)
    return SearchIndex(folder, encoder)


@pytest.mark.parametrize(
    ("named", "default", "line", "query"),
    [
        (E5, None, "p: w3", "q: w3"),
        (E5, "query", "p: w3", "q: w3"),
        ({"query": "q: "}, "query", "w3", "q: w3"),
        ({"other": "o: "}, "other", "o: w3", "o: w3"),
        ({}, None, "w3", "w3"),
    ],
)
def test_lines_and_queries_have_prompts_of_their_own(
    tmp_path: Path, named, default, line: str, query: str
) -> None:
    encoder = PromptedEncoder(named, default)
    index = build(encoder, tmp_path)
    assert encoder.embedded[-1] == line
    index.search("w3")
    assert encoder.embedded[-1] == query


def test_prompts_are_logged_once_and_recorded(tmp_path: Path, caplog) -> None:
    index = build(PromptedEncoder(E5), tmp_path)
    for _ in range(2):
        index.search("w3")
    assert caplog.text.count("Prompts of the model: lines after 'p: ', queries after 'q: '") == 1
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    assert index.description.prompts == {"document": "p: ", "query": "q: "}
    manifest = json.loads((tmp_path / "embeddings" / MANIFEST).read_text())
    assert manifest["settings"]["encoder"]["prompt"] == "p: "


def test_no_prompts_are_recorded_for_a_model_without_them(tmp_path: Path, caplog) -> None:
    build(PromptedEncoder({"other": "o: "}, "other"), tmp_path).search("w3")
    assert json.loads((tmp_path / "index.json").read_text())["prompts"] is None
    assert "prompt" not in (tmp_path / "embeddings" / MANIFEST).read_text()
    assert "Prompts" not in caplog.text


def test_a_repeated_build_changes_nothing(tmp_path: Path) -> None:
    build(PromptedEncoder(E5), tmp_path)
    encoder = PromptedEncoder(E5)
    assert build_index(encoder, LINES, tmp_path, backend="numpy").kept and not encoder.embedded


def test_the_user_can_choose_the_prompts(tmp_path: Path) -> None:
    encoder = PromptedEncoder(E5, prompt="mine: ")
    index = build(encoder, tmp_path)
    assert encoder.embedded[-1] == "mine: w3"
    index.search("w3")  # the prompt of the encoder applies to lines only
    assert encoder.embedded[-1] == "q: w3"
    choices = {"other: w3": {"prompt": "other: "}, "p: w3": {"prompt_name": "passage"}}
    for expected, asked in choices.items():
        SearchIndex(tmp_path, encoder, **asked).search("w3")
        assert encoder.embedded[-1] == expected


def test_an_empty_prompt_disables_prompts(tmp_path: Path) -> None:
    encoder = PromptedEncoder(E5, prompt="")
    build(encoder, tmp_path)
    assert encoder.embedded[-1] == "w3"
    SearchIndex(tmp_path, PromptedEncoder(E5), prompt="").search("w1")
    SearchIndex(tmp_path, queries := PromptedEncoder(E5)).search("w1")
    assert queries.embedded == ["q: w1"]


def test_another_prompt_than_before_is_refused(tmp_path: Path) -> None:
    build(PromptedEncoder(E5), tmp_path)
    with pytest.raises(SearchError, match=r'encoder.prompt: "p: " there, "mine: " now'):
        build(PromptedEncoder(E5, prompt="mine: "), tmp_path)
    with pytest.raises(SearchError, match=r'prompt: none there, "mine: " now. Build the index'):
        SearchIndex(tmp_path, PromptedEncoder(E5, prompt="mine: ")).search("w1")
    build(PromptedEncoder(E5, prompt="mine: "), tmp_path, overwrite=True).search("w1")


def test_an_unknown_prompt_name_is_refused(tmp_path: Path) -> None:
    build(PromptedEncoder(E5), tmp_path)
    index = SearchIndex(tmp_path, PromptedEncoder(E5), prompt_name="qeury")
    with pytest.raises(SearchError, match="no prompt named 'qeury'; it has 'query', 'passage'"):
        index.search("w1")
    build(FakeEncoder(), tmp_path / "plain")
    index = SearchIndex(tmp_path / "plain", FakeEncoder(), prompt="q: ")
    with pytest.raises(SearchError, match="encoder of this index takes none"):
        index.search("w1")


@pytest.mark.parametrize("default", [None, "query"])
@pytest.mark.parametrize("named", [E5, {"query": "q: "}])
def test_an_index_of_an_early_release_stays_without_prompts(
    tmp_path: Path, named, default, caplog
) -> None:
    before = PromptedEncoder({"all": "q: "}, "all" if default else None)  # names no sides
    build(before, tmp_path)
    caplog.clear()
    encoder = PromptedEncoder(named, default)
    index = SearchIndex(tmp_path, encoder)
    for _ in range(2):
        index.search("w3")
    assert encoder.embedded[-1] == ("q: w3" if default else "w3")
    assert caplog.text.count("did not use the prompts of its model: queries are embedded as") == 1
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1
    caplog.clear()
    again = build_index(PromptedEncoder(named, default), LINES, tmp_path, backend="numpy")
    assert again.kept and again.description.prompts is None
    assert caplog.text.count("and goes on as it was. One made anew (--overwrite) would") == 1
    build(encoder, tmp_path, overwrite=True).search("w3")
    assert encoder.embedded[-1] == "q: w3"
    assert SearchIndex(tmp_path).description.prompts is not None


def test_a_resumed_build_keeps_its_prompts(tmp_path: Path) -> None:
    class Killed(PromptedEncoder):
        def __call__(self, texts, prompt=None):
            if self.embedded:
                raise KeyboardInterrupt
            return super().__call__(texts, prompt)

    named = {"query": "q: "}  # The record of no prompt for lines must differ from no record.
    with pytest.raises(KeyboardInterrupt):
        build(Killed(named), tmp_path, shard_rows=1)
    index = build(PromptedEncoder(named), tmp_path)
    assert index.description.prompts == {"document": "", "query": "q: "}


@pytest.mark.parametrize("prompts", [[], {"query": "q: "}, {"query": 1, "document": ""}])
def test_an_invalid_record_of_prompts_is_refused(tmp_path: Path, prompts) -> None:
    build(PromptedEncoder(E5), tmp_path)
    about = json.loads((tmp_path / "index.json").read_text()) | {"prompts": prompts}
    (tmp_path / "index.json").write_text(json.dumps(about))
    with pytest.raises(SearchError, match="does not describe an index"):
        SearchIndex(tmp_path)


def test_file_names_in_place_of_texts_are_noticed(tmp_path: Path, caplog) -> None:
    file = tmp_path / "queries.txt"
    file.write_text("w1\n")
    with pytest.raises(TypeError, match="got a single one; put it in a list"):
        build_index(FakeEncoder(), str(file), tmp_path / "index")
    index = build(FakeEncoder(), tmp_path / "index")
    with pytest.raises(TypeError, match="Expected a query, one string, got PosixPath"):
        index.search(file)  # type: ignore[arg-type]
    for _ in range(2):
        index.search(str(file))
    assert caplog.text.count("queries.txt' names a file, and is embedded as the text it is") == 1
    assert "`declutr search INDEX < FILE`" in caplog.text
