"""Draw docs/placements.png: which parts of documents the placements of the reader cover.

    python scripts/plot_placements.py --output docs/placements.png

It samples anchors as the recipe `declutr` does, and prints their coverage by eighths, the table of
docs/SAMPLING.md. It needs matplotlib: pip install 'declutr[plots]'.
"""

import argparse
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from declutr.sampling.row_draws import document_rng
from declutr.sampling.span_geometry import coverage
from declutr.sampling.spans import PLACEMENTS, SpanSampler

LENGTHS = (300, 2048, 3072, 4096, 8192)
PARTS = 64  # eight to an eighth


def mean_coverage(placement: str, length: int, draws: int, seed: int = 3) -> np.ndarray:
    """Anchors over a token `(PARTS,)`, the mean of so many documents of `length` tokens."""
    sampler = SpanSampler(placement=placement).shrunk_to(length)  # two anchors of 32 to 512
    covered = np.zeros(PARTS)
    for document in range(draws):
        spans = sampler.sample(length, document_rng(seed, 0, document))
        covered += coverage(spans.anchors, length, PARTS)
    return covered / draws


def drawn(curves: dict[str, dict[int, np.ndarray]]) -> Any:
    """A panel for each placement, a curve for each length."""
    from declutr.evaluation.report.plots.style import COLOURS, new_panels

    figure, panels = new_panels(len(curves), 3.3, 3.0)
    places = (np.arange(PARTS) + 0.5) / PARTS
    for panel, (placement, by_length) in zip(panels, curves.items(), strict=True):
        for (length, covered), colour in zip(by_length.items(), COLOURS, strict=False):
            label = f"{length:,} tokens" + (" (shrunk)" if length < 2048 else "")
            panel.plot(places, covered / covered.mean(), color=colour, label=label, linewidth=1.6)
        panel.axhline(1, color="#888888", linewidth=0.8, linestyle=":")
        panel.set(title=f'"{placement}"', xlim=(0, 1), ylim=(0, 2.4))
        panel.set_xlabel("place in the document")
        panel.grid()
    panels[0].set_ylabel("anchors over a token,\nby the mean of the document")
    panels[1].legend(fontsize=8)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs/placements.png"))
    parser.add_argument("--draws", type=int, default=20_000, help="documents a curve")
    options = parser.parse_args(arguments)
    curves = {
        placement: {length: mean_coverage(placement, length, options.draws) for length in LENGTHS}
        for placement in PLACEMENTS
    }
    for placement, by_length in curves.items():
        for length, covered in by_length.items():
            eighths = covered.reshape(8, -1).mean(axis=1)
            print(f"| `{placement}` | {length:,} | {' '.join(f'{x:.2f}' for x in eighths)} |")
    from matplotlib import rc_context
    from PIL import Image  # matplotlib needs it, too

    from declutr.evaluation.report.plots.style import STYLE

    whole = BytesIO()
    with rc_context(STYLE):
        drawn(curves).savefig(whole, dpi=110)
    Image.open(whole).quantize(64).save(options.output, "png", optimize=True)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
