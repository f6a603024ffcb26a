"""Tests of prompts by name, of default prompts, and of the prompts of a search."""

import pytest

from declutr.inference.open_text_model import EncoderError
from declutr.inference.text_model import Prompts, SidePrompts, side_prompts

E5 = {"query": "query: ", "passage": "passage: "}


class Prompted:
    """A stand-in for an encoder, with its attributes for prompts only."""

    def __init__(self, prompts: Prompts, prompt: str | None = None) -> None:
        self.prompts, self.prompt = prompts, prompt


def test_prompts_are_chosen_by_text_or_name() -> None:
    prompts = Prompts(E5, "query")
    assert prompts.default == "query: " and Prompts(E5).default == ""
    assert prompts.chosen(None, None, "m") is None
    assert prompts.chosen(None, "passage", "m") == "passage: "
    assert prompts.chosen("", None, "m") == ""


@pytest.mark.parametrize(
    ("named", "known"), [(E5, "'query', 'passage'"), ({}, "none"), ({"a b": ""}, "'a b'")]
)
def test_an_unknown_name_is_reported_with_the_known_ones(named: dict, known: str) -> None:
    with pytest.raises(EncoderError, match=f"'m' has no prompt named 'qeury'; it has {known}. G"):
        Prompts(named).chosen(None, "qeury", "m")


def test_contradictory_prompts_are_refused() -> None:
    with pytest.raises(EncoderError, match="Got prompt and prompt_name; give one of them"):
        Prompts(E5).chosen("query: ", "query", "m")
    with pytest.raises(TypeError, match="Expected prompt_name to be a string, got int"):
        Prompts(E5).chosen(None, 1, "m")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "default", "sides"),
    [
        (E5, None, ("passage: ", "query: ")),
        ({**E5, "document": "title: "}, None, ("title: ", "query: ")),
        # sentence-transformers writes "" for prompts that are not used.
        ({**E5, "document": ""}, None, ("passage: ", "query: ")),
        ({"query": "query: ", "corpus": "c: "}, "corpus", ("c: ", "query: ")),
        ({"query": "query: "}, "query", ("", "query: ")),  # the default is not used for documents
        ({"document": "d: "}, None, ("d: ", "")),
        ({"query": "", "document": "", "other": "o: "}, "other", None),
        ({}, None, None),
    ],
)
def test_sides_of_a_search(named: dict, default: str | None, sides: tuple | None) -> None:
    assert Prompts(named, default).sides == sides
    assert side_prompts(Prompted(Prompts(named, default))) == sides


def test_the_prompt_of_an_encoder_is_for_documents() -> None:
    assert side_prompts(Prompted(Prompts(E5), "mine: ")) == ("mine: ", "query: ")
    assert side_prompts(Prompted(Prompts({"all": "a: "}, "all"), "")) == ("", "a: ")
    assert side_prompts(lambda texts: texts) is None


def test_side_prompts_as_text() -> None:
    assert str(SidePrompts("", "q: ")) == "lines without a prompt, queries after 'q: '"
