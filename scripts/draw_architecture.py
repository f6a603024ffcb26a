"""Draw docs/architecture.svg: a training step of the recipe `declutr`, with registered names.

    python scripts/draw_architecture.py

Names are those of the evaluated recipe, of the model's defaults, and of
`declutr/bridge/component_names.py`.
"""

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from _jsonnet import evaluate_file

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"
RECIPE = ROOT / "training_config" / "declutr.jsonnet"

MARGIN, WIDTH, GAP, TOP, HEIGHT = 20, 120, 20, 56, 142
TOTAL = 2 * MARGIN + 7 * WIDTH + 6 * GAP
BOTTOM = 360
NONE = "(none)"  # what the recipe leaves out
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #f6f8fa; stroke: #8c959f }
  .optional { stroke-dasharray: 5 4 }
  .line { fill: none; stroke: #57606a; stroke-width: 1.5 }
  .head { fill: #57606a }
  .grey { fill: #c4ccd4 } .anchor { fill: #2f6fd0 } .positive { fill: #e08a1e }
  text { font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
         fill: #1f2328; text-anchor: middle; font-size: 12px }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #57606a }
  .name { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    .box { fill: #161b22; stroke: #6e7681 }
    .line { stroke: #9198a1 } .head { fill: #9198a1 }
    .grey { fill: #444c56 } .anchor { fill: #58a0ff } .positive { fill: #f0a848 }
    text { fill: #e6edf3 } .quiet { fill: #9198a1 }
  }
"""


class Box(NamedTuple):
    """A box of the picture: what it is, with a caption of two lines.

    Under it stand a base class, the registered name, and further names that a recipe may give.
    """

    title: str
    caption: str
    base: str
    name: str
    others: Sequence[str] = ()


def names() -> dict[str, str]:
    """The registered name of each part of the recipe, defaults of the model included."""
    from allennlp.modules import Seq2VecEncoder

    import declutr.plugin  # noqa: F401
    from declutr.components import registered_name
    from declutr.models.parts import pooler_of
    from declutr.models.views import SpanViews, Views

    config = json.loads(evaluate_file(str(RECIPE), ext_vars={"TRANSFORMER_MODEL": "any"}))
    reader, model, trainer = (config[key] for key in ("dataset_reader", "model", "trainer"))
    embedder: Any = SimpleNamespace(get_output_dim=lambda: 1)
    found = {
        "reader": reader["type"],
        "tokenizer": reader["tokenizer"]["type"],
        "views": registered_name(Views, SpanViews),
        "field_embedder": model["text_field_embedder"]["type"],
        "embedder": model["text_field_embedder"]["token_embedders"]["tokens"]["type"],
        "pooler": registered_name(Seq2VecEncoder, type(pooler_of(None, embedder))),
        "loss": model["loss"]["type"],
        "model": model["type"],
        "loader": config["data_loader"]["type"],
        "trainer": trainer["type"],
        "checkpointer": trainer["checkpointer"]["type"],
        "callbacks": ", ".join(f'"{callback["type"]}"' for callback in trainer["callbacks"]),
    }
    given = [key for key in ("views", "seq2vec_encoder", "head", "feedforward") if key in model]
    if given or None in found.values():
        raise RuntimeError(f"The recipe or the defaults changed ({given}, {found}): draw it anew.")
    return {key: str(name) for key, name in found.items()}


def registered(base: str) -> list[str]:
    """The names of this package for a base class, those for single tasks and libraries left out."""
    from declutr.components import COMPONENTS

    table = next(names for place, names in COMPONENTS.items() if place.endswith(f":{base}"))
    apart = (".library.", ".task_models.")
    return [name for name, place in table.items() if not any(room in place for room in apart)]


def boxes(known: dict[str, str]) -> list[Box]:
    """The seven boxes, from a document to the loss."""
    reader, views, head, losses = map(registered, ("DatasetReader", "Views", "Head", "Objective"))
    poolers = ["cls_pooler", "ngram_convolutions"]
    return [
        Box(
            "Document", "a line of text,|a row of a table", "DatasetReader", known["reader"], reader
        ),
        Box("Ids", "tokenised once,|kept on disk", "Tokenizer", known["tokenizer"]),
        Box("Spans", "anchors, positives:|new in each epoch", "Views", known["views"], views),
        Box("Encoder", "a transformer,|without padding", "TokenEmbedder", known["embedder"]),
        Box("Pooler", "the mean of|all token vectors", "Seq2VecEncoder", known["pooler"], poolers),
        Box("Head", "a projection,|in training only", "Head", NONE, head),
        Box("Loss", "each anchor finds|its positives", "Objective", known["loss"], losses),
    ]


def rectangle(x: float, y: float, width: float, height: float, kind: str, round_by: int = 1) -> str:
    size = f'width="{width:g}" height="{height:g}" rx="{round_by}"'
    return f'<rect x="{x:g}" y="{y:g}" {size} class="{kind}"/>'


def art() -> dict[str, str]:
    """The shapes in each box, by its title."""
    widths = (70, 64, 70, 58, 68, 70, 40)  # of lines of text
    cells = [(x, y) for y in range(5) for x in range(7) if (y, x) < (4, 4)]
    # An anchor, and two positives, one of which overlaps it.
    drawn = ((range(2, 6), "anchor"), (range(4, 7), "positive"), (range(0, 3), "positive"))
    tokens = [
        rectangle(5 + 9 * x, 6 + 19 * y, 7, 10, kind if x in span else "grey", 2)
        for y, (span, kind) in enumerate(drawn)
        for x in range(9)
    ]
    vectors = "".join(rectangle(6 + 11 * x, 10, 7, 40, "anchor") for x in range(4))
    pairs = [  # on the diagonal, and negatives beside it
        rectangle(19 + 14 * x, 4 + 14 * y, 11, 11, "positive" if x == y else "grey", 2)
        for y in range(4)
        for x in range(4)
    ]
    funnel = '<path d="M16 6 L52 20 L52 40 L16 54 Z" class="grey"/>'
    return {
        "Document": "".join(rectangle(10, 3 + 8 * y, w, 4, "grey") for y, w in enumerate(widths)),
        "Ids": "".join(rectangle(10 + 10 * x, 4 + 11 * y, 8, 8, "grey", 2) for x, y in cells),
        "Spans": "".join(tokens),
        "Encoder": "".join(rectangle(8, 4 + 14 * y, 74, 9, "grey", 3) for y in range(4)),
        "Pooler": f'<g opacity="0.45">{vectors}</g>{arrow(52, 30, 68)}'
        + rectangle(74, 10, 9, 40, "anchor"),
        "Head": funnel + arrow(56, 30, 68) + rectangle(74, 18, 9, 24, "anchor"),
        "Loss": "".join(pairs),
    }


def arrow(start: float, y: float, end: float) -> str:
    """A horizontal arrow to the right."""
    return (
        f'<path d="M{start:g} {y:g} H{end - 4:g}" class="line"/>'
        f'<path d="M{end - 6:g} {y - 4:g} L{end:g} {y:g} L{end - 6:g} {y + 4:g} Z" class="head"/>'
    )


def text(x: float, y: float, content: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(content)}</text>'


def left(number: int) -> int:
    """The left side of a box."""
    return MARGIN + number * (WIDTH + GAP)


def named(box: Box) -> Iterator[tuple[str, str]]:
    """The lines under a box, and how each is written."""
    yield box.base, "quiet"
    # A long name is parted at its underscores.
    for line in textwrap.wrap(box.name.replace("_", "_ "), 17):
        yield line.replace("_ ", "_"), "name"
    others = [name for name in box.others if name != box.name]
    if len(others) > 8:
        yield f"or one of {len(others)} more", "quiet"
    elif others:
        lines = textwrap.wrap("or " + ", ".join(others), 20, break_on_hyphens=False)
        for line in lines[:3]:
            yield line, "quiet"


def drawn_box(number: int, box: Box) -> Iterator[str]:
    """A box, what is in it and under it, and the arrow to the next."""
    x = left(number)
    centre = x + WIDTH / 2
    yield rectangle(x, TOP, WIDTH, HEIGHT, "box optional" if box.name == NONE else "box", 8)
    yield text(centre, TOP + 22, box.title, "title")
    yield f'<g transform="translate({x + 15} {TOP + 34})">{art()[box.title]}</g>'
    for line, content in enumerate(box.caption.split("|")):
        yield text(centre, TOP + 114 + 16 * line, content, "quiet")
    for line, (content, kind) in enumerate(named(box)):
        yield text(centre, TOP + HEIGHT + 20 + 16 * line, content, kind)
    if number < 6:
        yield arrow(x + WIDTH + 2, TOP + HEIGHT / 2, x + WIDTH + GAP - 2)


def bracket(first: int, last: int, y: int, content: str) -> str:
    """What holds several boxes: a line under them, with its registered name."""
    start, end = left(first), left(last) + WIDTH
    line = f'<path d="M{start} {y - 6} V{y} H{end} V{y - 6}" class="line"/>'
    return line + text((start + end) / 2, y + 17, content)


def masked_language_modelling(name: str) -> str:
    """The way of masked anchors, from the encoder above the boxes into the loss."""
    start, end = left(3) + WIDTH // 2, left(6) + WIDTH // 2
    content = f'masked tokens of anchors are predicted: TextFieldEmbedder "{name}"'
    return (
        f'<path d="M{start} {TOP} V38 H{end} V{TOP - 5}" class="line"/>'
        f'<path d="M{end - 4} {TOP - 8} L{end} {TOP - 1} L{end + 4} {TOP - 8} Z" class="head"/>'
    ) + text((start + end) / 2, 28, content)


def picture() -> str:
    """The whole picture."""
    known = names()
    around = (
        f'Trainer "{known["trainer"]}", Checkpointer "{known["checkpointer"]}", '
        f"TrainerCallbacks {known['callbacks']}"
    )
    shapes = [rectangle(1, 1, TOTAL - 2, BOTTOM - 2, "card", 10)]
    for number, box in enumerate(boxes(known)):
        shapes += drawn_box(number, box)
    shapes += [
        masked_language_modelling(known["field_embedder"]),
        bracket(0, 2, 296, f'DataLoader "{known["loader"]}": batches by worker processes'),
        bracket(3, 6, 296, f'Model "{known["model"]}"'),
        bracket(0, 6, 330, around),
    ]
    title = "A training step of declutr, from a document to the loss, with registered names"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {TOTAL} {BOTTOM}" role="img">'
    return "\n".join(
        [head, f"<title>{title}</title>", f"<style>{STYLE}</style>", *shapes, "</svg>\n"]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=PICTURE)
    parser.parse_args(arguments).output.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
