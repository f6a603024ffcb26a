"""A stand-in for spaCy's English model: its tokenizer, and parts that are hardly trained."""

from pathlib import Path

NAME = "en_core_web_sm"
_CODE = """from pathlib import Path
from spacy.util import load_model_from_init_py


def load(**overrides):
    return load_model_from_init_py(__file__, **overrides)
"""
_EXAMPLES = [  # words, tags, heads, relations
    ("The cat sees a dog .", "DT NN VBZ DT NN .", "1 2 2 4 2 2", "det nsubj ROOT det dobj punct"),
    ("He likes good movies .", "PRP VBZ JJ NNS .", "1 1 3 1 1", "nsubj ROOT amod dobj punct"),
    (
        "This is a sentence . This is the second sentence !",
        "DT VBZ DT NN . DT VBZ DT JJ NN .",
        "1 1 3 1 1 6 6 9 9 6 6",
        "nsubj ROOT det attr punct nsubj ROOT det amod attr punct",
    ),
    (
        "This is the first sentence . She was in Paris today .",
        "DT VBZ DT JJ NN . PRP VBD IN NNP NN .",
        "1 1 4 4 1 1 7 7 7 8 7 7",
        "nsubj ROOT det amod attr punct nsubj ROOT prep pobj npadvmod punct",
    ),
    ("This is a sentence .", "DT VBZ DT NN .", "1 1 3 1 1", "nsubj ROOT det attr punct"),
]
_UNIVERSAL = {"DT": "DET", "NN": "NOUN", "NNS": "NOUN", "NNP": "PROPN", "PRP": "PRON"}
_UNIVERSAL |= {"VBZ": "VERB", "VBD": "VERB", "JJ": "ADJ", "IN": "ADP", ".": "PUNCT"}


def make_spacy_model(folder: Path, rounds: int = 40) -> Path:
    """Make the package `en_core_web_sm` in a folder that can then be on the path of Python.

    # Parameters

    folder : the folder of packages.
    rounds : passes over a few sentences, on which the parts are trained.

    # Returns

    The folder of the package.
    """
    import spacy
    from spacy.training import Example

    place = folder / NAME
    if (place / "__init__.py").exists():  # it is written last
        return place
    nlp = spacy.blank("en")
    for part in ("tagger", "ner", "attribute_ruler"):
        nlp.add_pipe(part)
    nlp.add_pipe("parser", config={"min_action_freq": 1})  # keep relations that are seen once
    examples = [
        Example.from_dict(nlp.make_doc(text), _annotations(text, *others))
        for text, *others in _EXAMPLES
    ]
    optimizer = nlp.initialize(lambda: examples)
    nlp.get_pipe("attribute_ruler").add_patterns(
        [{"patterns": [[{"TAG": tag}]], "attrs": {"POS": pos}} for tag, pos in _UNIVERSAL.items()]
    )
    for _ in range(rounds):
        nlp.update(examples, sgd=optimizer)
    nlp.meta.update(name="core_web_sm", version="3.8.0")
    place.mkdir(parents=True, exist_ok=True)
    nlp.to_disk(place / f"{NAME}-3.8.0")
    (place / "meta.json").write_text((place / f"{NAME}-3.8.0" / "meta.json").read_text())
    information = folder / f"{NAME}-3.8.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 3.8.0\n")
    (place / "__init__.py").write_text(_CODE)
    return place


def _annotations(text: str, tags: str, heads: str, relations: str) -> dict[str, list[object]]:
    words = text.split()
    return {
        "words": list(words),
        "tags": list(tags.split()),
        "heads": [int(head) for head in heads.split()],
        "deps": list(relations.split()),
        "entities": ["U-GPE" if word == "Paris" else "O" for word in words],
    }
