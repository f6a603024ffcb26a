"""Pictures of a comparison of encoders, drawn by matplotlib (the extra `plots`)."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.dimensions import whole_encoders
from declutr.evaluation.report.pairs import contestants
from declutr.evaluation.report.plots.embeddings import embedding_map, plane, similarities
from declutr.evaluation.report.plots.published import published_bars
from declutr.evaluation.report.plots.scores import dimension_curves, task_bars
from declutr.evaluation.report.plots.style import STYLE
from declutr.evaluation.report.quoted import Quoted

HOW_TO_GET = "Pictures need matplotlib: pip install 'declutr[plots]' (or pip install matplotlib)."
"""The message that tells how to install matplotlib."""


class Picture(NamedTuple):
    """A picture in a file, with its title and its caption."""

    path: Path
    title: str
    caption: str


def available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(
    comparison: Comparison,
    folder: str | Path,
    averages: Mapping[str, Mapping[str, float]],
    quoted: Sequence[Quoted] = (),
    svg: bool = False,
) -> list[Picture]:
    """Draw every picture for which there are results, as PNG files in `folder`.

    # Parameters

    comparison : the results.
    folder : the folder to write to; it is made if necessary.
    averages : values by name of the average, then by encoder; one average colours the picture of
        alignment and uniformity.
    quoted : rows of papers to draw beside averages.
    svg : write each picture as SVG as well, under the same name.

    # Raises

    `ModuleNotFoundError` : matplotlib is not installed.
    """
    if not available():
        raise ModuleNotFoundError(HOW_TO_GET)
    from matplotlib import rc_context

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    whole, found = whole_encoders(comparison), []
    groups = contestants(whole)
    own = {name: _of_contestants(groups, of_one) for name, of_one in averages.items()}
    with rc_context(STYLE):
        published = published_bars(own, quoted)
        for name, title, figure, caption in (
            ("tasks", "Scores of tasks", task_bars(whole), _BARS),
            ("published", "Averages beside papers", published, _PUBLISHED),
            ("plane", "Alignment and uniformity", plane(whole, averages), _PLANE),
            ("similarities", "Similarities", similarities(whole), _SIMILARITIES),
            ("map", "Map of embeddings", embedding_map(whole), _MAP),
            ("dimensions", "Dimension against quality", dimension_curves(comparison), _DIMENSIONS),
        ):
            path = folder / f"{name}.png"
            for old in (path, path.with_suffix(".svg")):
                old.unlink(missing_ok=True)
            if figure is not None:
                figure.savefig(path)
                if svg:
                    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
                found.append(Picture(path, title, caption))
    return found


def _of_contestants(
    groups: Mapping[str, Sequence[str]], values: Mapping[str, float]
) -> dict[str, float]:
    """Return the mean over the seeds of each contestant that has all of its values."""
    return {
        f"{name} ({len(group)} seeds)" if len(group) > 1 else name: fmean(values[e] for e in group)
        for name, group in groups.items()
        if all(encoder in values for encoder in group)
    }


_BARS = (
    "The main score of each task, in percent. A thin line is the 95 % bootstrap interval over test "
    "items."
)
_PUBLISHED = (
    "Averages of these encoders, and, in grey with a mark in brackets, those that papers print. "
    "The latter were not measured here."
)
_PLANE = (
    "Low is good on both axes: alignment is the mean squared distance of embeddings of sentences "
    "that mean the same, uniformity tells how evenly embeddings cover the sphere (Wang and Isola, "
    "2020). The colour is the score named beside the bar."
)
_SIMILARITIES = (
    "How similar embeddings are, by cosine, for pairs of each degree of similarity that people "
    "gave. Good embeddings put the rows at different places, in order. A mark is the median."
)
_MAP = (
    "Embeddings of labelled sentences on their first two principal components. The share is that "
    "of the variance which the two show."
)
_DIMENSIONS = (
    "Main scores with the leading dimensions alone; the open mark is the whole embedding, of as "
    "many dimensions as stand behind the name. Thin lines are the tasks of a mean, a band is the "
    "95 % bootstrap interval over the test items of a single task."
)
