"""Prompts by name, the default among them, and those of the two sides of a search."""

import pytest

from declutr.inference.open_text_model import EncoderError
from declutr.inference.text_model import Prompts, SidePrompts, side_prompts

E5 = {"query": "query: ", "passage": "passage: "}


class Prompted:
    """What of an encoder is asked for its prompts."""

    def __init__(self, prompts: Prompts, prompt: str | None = None) -> None:
        self.prompts, self.prompt = prompts, prompt


def test_what_is_asked_for() -> None:
    prompts = Prompts(E5, "query")
    assert prompts.default == "query: " and Prompts(E5).default == ""
    assert prompts.chosen(None, None, "m") is None
    assert prompts.chosen(None, "passage", "m") == "passage: "
    assert prompts.chosen("", None, "m") == ""


@pytest.mark.parametrize(
    ("named", "known"), [(E5, "'query', 'passage'"), ({}, "none"), ({"a b": ""}, "'a b'")]
)
def test_an_unknown_name_is_told_with_the_known_ones(named: dict, known: str) -> None:
    with pytest.raises(EncoderError, match=f"'m' has no prompt named 'qeury'; it has {known}. G"):
        Prompts(named).chosen(None, "qeury", "m")


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(EncoderError, match="Got prompt and prompt_name; give one of them"):
        Prompts(E5).chosen("query: ", "query", "m")
    with pytest.raises(TypeError, match="Expected prompt_name to be a string, got int"):
        Prompts(E5).chosen(None, 1, "m")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "default", "sides"),
    [
        (E5, None, ("passage: ", "query: ")),
        ({**E5, "document": "title: "}, None, ("title: ", "query: ")),
        ({**E5, "document": ""}, None, ("passage: ", "query: ")),  # as the package writes it
        ({"query": "query: ", "corpus": "c: "}, "corpus", ("c: ", "query: ")),
        ({"query": "query: "}, "query", ("", "query: ")),  # never before lines
        ({"document": "d: "}, None, ("d: ", "")),
        ({"query": "", "document": "", "other": "o: "}, "other", None),
        ({}, None, None),
    ],
)
def test_sides_of_a_search(named: dict, default: str | None, sides: tuple | None) -> None:
    assert Prompts(named, default).sides == sides
    assert side_prompts(Prompted(Prompts(named, default))) == sides


def test_a_prompt_of_ones_own_is_that_of_documents() -> None:
    assert side_prompts(Prompted(Prompts(E5), "mine: ")) == ("mine: ", "query: ")
    assert side_prompts(Prompted(Prompts({"all": "a: "}, "all"), "")) == ("", "a: ")
    assert side_prompts(lambda texts: texts) is None


def test_in_words() -> None:
    assert str(SidePrompts("", "q: ")) == "lines without a prompt, queries after 'q: '"
