"""Draw docs/static_encoder.svg: what training does to a static encoder, by a finished `make train`.

    make train
    python scripts/plot_static_encoder.py --folder quickstart --output docs/static_encoder.svg

Two maps (t-SNE of cosines) show docstrings of modules that were held out, in the colours of their
packages, embedded by the first table and by the trained encoder. Above each stands how many of the
ten nearest docstrings, in the embeddings themselves, are of the same package. It needs matplotlib:
pip install 'declutr[plots]'.
"""

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from declutr import Encoder
from declutr.quickstart.static_encoder import (
    NamedDocstring,
    Retrieval,
    read_docstrings,
    retrieval,
    start_of,
)
from declutr.system.vectors import unit_rows

PACKAGES, EACH, NEIGHBOURS = 6, 80, 10
_LEAST_WORDS = 16


def package(one: NamedDocstring) -> str:
    return one.name.partition(".")[0]


def chosen(docstrings: Sequence[NamedDocstring]) -> list[NamedDocstring]:
    """Return held-out docstrings of the packages with most of them, equally many of each."""
    long = [
        one
        for one in docstrings
        if one.held_out and len(f"{one.summary} {one.body}".split()) >= _LEAST_WORDS
    ]
    names = [name for name, _ in Counter(map(package, long)).most_common(PACKAGES)]
    found = []
    for name in names:
        of_package = [one for one in long if package(one) == name]
        found += random.Random(0).sample(of_package, min(EACH, len(of_package)))
    return found


def near_share(vectors: np.ndarray, groups: np.ndarray) -> float:
    """Return the share of the nearest `NEIGHBOURS` of each row that are of its own group."""
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :NEIGHBOURS]
    return float((groups[nearest] == groups[:, None]).mean())


def on_a_map(vectors: np.ndarray) -> np.ndarray:
    """Return places `(n, 2)` of vectors `(n, d)`, neighbours by cosine near each other."""
    from sklearn.manifold import TSNE

    return TSNE(metric="cosine", init="random", random_state=0).fit_transform(vectors)


def drawn(maps: dict[str, Any], names: list[str], groups: np.ndarray, found: Retrieval) -> Any:
    from declutr.evaluation.report.plots.style import COLOURS, new_panels

    figure, panels = new_panels(3, 3.4, 3.3)
    for panel, (title, (places, share)) in zip(panels, maps.items(), strict=False):
        for number, name in enumerate(names):
            x, y = places[groups == number].T.round(1)
            panel.scatter(x, y, s=7, color=COLOURS[number], label=name, linewidths=0)
        panel.set(title=title, xticks=[], yticks=[])
        panel.set_xlabel(f"same package: {share:.0%} of the {NEIGHBOURS} nearest")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=len(names),
        fontsize=9, markerscale=2, columnspacing=1, handletextpad=0.2,
    )  # fmt: skip
    bars, rows = panels[2], list(found.shares.items())[::-1]
    for place, (name, share) in enumerate(rows):
        ends = [[share.value - share.low], [share.high - share.value]]
        colour = COLOURS[0] if name.startswith("static") else "#AAAAAA"
        bars.barh(place, share.value, xerr=ends, color=colour, ecolor="#444444", height=0.6)
        bars.text(share.high + 0.01, place, f"{share.value:.0%}", va="center")
    bars.set_yticks(range(len(rows)), [name.replace(", ", ",\n") for name, _ in rows])
    bars.set(title="summary finds its text", xlim=(0, max(s.high for _, s in rows) * 1.2))
    bars.set_xlabel(f"of {found.pairs:,} held-out docstrings, with 95 % intervals")
    bars.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("quickstart"))
    parser.add_argument("--output", type=Path, default=Path("docs/static_encoder.svg"))
    options = parser.parse_args(arguments)
    docstrings = read_docstrings(options.folder / "docstrings.jsonl")
    run = options.folder / "static"
    encoders = {
        "static, first table": Encoder(start_of(run)),
        "static, trained": Encoder(run),
        "transformer, untrained": Encoder(options.folder / "untrained"),
        "transformer, trained": Encoder(options.folder / "model"),
    }
    texts = chosen(docstrings)
    names = list(dict.fromkeys(map(package, texts)))
    groups = np.array([names.index(package(one)) for one in texts])
    maps = {}
    for title, encoder in zip(("first table", "trained"), encoders.values(), strict=False):
        vectors = unit_rows(encoder([f"{one.summary} {one.body}" for one in texts]))
        maps[title] = on_a_map(vectors), near_share(vectors, groups)
    found = retrieval(encoders, docstrings)
    for name, share in [*found.shares.items(), *((k, one) for k, (_, one) in maps.items())]:
        print(name, share)
    from matplotlib import rc_context

    from declutr.evaluation.report.plots.style import STYLE

    with rc_context(STYLE):
        figure = drawn(maps, names, groups, found)
        figure.savefig(options.output, metadata={"Date": None})
        figure.savefig(options.output.with_suffix(".png"), dpi=110)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
