"""Draw docs/static_encoder.svg: what training does to a static encoder, by a finished `make train`.

    make train
    python scripts/plot_static_encoder.py --folder quickstart --output docs/static_encoder.svg

Two maps (t-SNE of cosines) show docstrings of six modules that were held out, embedded by the
first table and by the trained encoder. Under each stands how many of the ten nearest docstrings are
of the same module, in the embeddings themselves, for all modules that were held out. It needs
matplotlib: pip install 'declutr[plots]'.
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

SHOWN, EACH, NEIGHBOURS = 6, 60, 10
_LEAST_WORDS = 16


def usable(docstrings: Sequence[NamedDocstring]) -> list[NamedDocstring]:
    """Return held-out docstrings that are not short, of modules with enough of them."""
    long = [one for one in docstrings if one.held_out and len(text(one).split()) >= _LEAST_WORDS]
    counts = Counter(one.module for one in long)
    return [one for one in long if counts[one.module] > NEIGHBOURS]


def text(one: NamedDocstring) -> str:
    return f"{one.summary} {one.body}"


def shown(docstrings: Sequence[NamedDocstring]) -> dict[str, list[int]]:
    """Return the modules with most docstrings, one of a package, and places of docstrings."""
    names: list[str] = []
    packages: set[str] = set()
    for module, _ in Counter(one.module for one in docstrings).most_common():
        package = module.partition(".")[0]
        if package not in packages and len(names) < SHOWN:
            names.append(module)
            packages.add(package)
    places = {name: [n for n, one in enumerate(docstrings) if one.module == name] for name in names}
    return {
        name: sorted(random.Random(0).sample(of, min(EACH, len(of)))) for name, of in places.items()
    }


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


def drawn(maps: dict[str, Any], sizes: dict[str, int], found: Retrieval) -> Any:
    """A map for each table, and bars of the shares of summaries that find their text."""
    from declutr.evaluation.report.plots.style import COLOURS, new_panels

    figure, panels = new_panels(3, 3.4, 3.4)
    for panel, (title, (places, share)) in zip(panels, maps.items(), strict=False):
        ends = np.cumsum([0, *sizes.values()])
        for name, colour, start, end in zip(sizes, COLOURS, ends, ends[1:], strict=False):
            x, y = places[start:end].T.round(1)
            panel.scatter(x, y, s=9, color=colour, label=name, linewidths=0)
        panel.set(title=title, xticks=[], yticks=[])
        panel.set_xlabel(f"same module: {share:.0%} of the {NEIGHBOURS} nearest")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3,
        fontsize=9, markerscale=2, columnspacing=1, handletextpad=0.2,
    )  # fmt: skip
    bars, rows = panels[2], list(found.shares.items())[::-1]
    for place, (name, share) in enumerate(rows):
        error = [[share.value - share.low], [share.high - share.value]]
        colour = COLOURS[0] if name.startswith("static") else "#AAAAAA"
        bars.barh(place, share.value, xerr=error, color=colour, ecolor="#444444", height=0.6)
        bars.text(share.high + 0.01, place, f"{share.value:.0%}", va="center")
    bars.set_yticks(range(len(rows)), [name.replace(", ", ",\n") for name, _ in rows])
    bars.set(title="summary finds its text", xlim=(0, max(s.high for _, s in rows) * 1.2))
    bars.set_xlabel(f"{found.pairs:,} held-out docstrings, 95 % intervals")
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
    candidates = usable(docstrings)
    modules = shown(candidates)
    places = [place for of in modules.values() for place in of]
    groups = np.unique([one.module for one in candidates], return_inverse=True)[1]
    maps = {}
    for title, encoder in zip(("first table", "trained"), encoders.values(), strict=False):
        vectors = unit_rows(encoder([text(one) for one in candidates]))
        maps[title] = on_a_map(vectors[places]), near_share(vectors, groups)
    print(f"{len(candidates)} docstrings of {groups.max() + 1} modules")
    found = retrieval(encoders, docstrings)
    for name, share in [*found.shares.items(), *((k, one) for k, (_, one) in maps.items())]:
        print(name, share)
    from matplotlib import rc_context

    from declutr.evaluation.report.plots.style import STYLE

    with rc_context(STYLE):
        picture = drawn(maps, {name: len(of) for name, of in modules.items()}, found)
        picture.savefig(options.output, metadata={"Date": None})
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
