"""The common style of pictures: colours, fonts, panels, and shortened names."""

import math
from typing import Any

# Colour-blind readers can tell these colours apart. The pale yellow of the palette is left out,
# because it is hard to see on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#444444")
"""The colours of encoders: Okabe and Ito's palette (2008) without yellow."""
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "axes.labelcolor": "#333333",
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "grid.color": "#E3E3E3",
    "figure.facecolor": "white",
    "legend.frameon": False,
    "savefig.dpi": 150,
    "svg.fonttype": "none",  # text that can be searched, in the reader's font
    "svg.hashsalt": "declutr",  # the same picture gives the same file
}
"""Settings of matplotlib for all pictures."""


def shortened(name: str, longest: int = 26) -> str:
    """Shorten a name that is too long, at its beginning if it is a path, else in its middle."""
    if len(name) <= longest:
        return name
    if "/" in name:  # the end of a path or of a model's name on a hub tells most
        return f"…{name[1 - longest :]}"
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def new_figure(width: float, height: float, layout: Any = "constrained") -> Any:
    """Make a figure, in inches, that needs no display and does not affect the user's pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)  # needs no window system, whatever backend the user has set
    return figure


def new_panels(count: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Make a figure with panels in rows of at most three; four panels make two rows of two.

    # Returns

    The figure and its panels.
    """
    columns = 2 if count == 4 else min(count, 3)
    rows = math.ceil(count / columns)
    figure = new_figure(width * columns + 0.5, height * rows + 0.5)
    panels = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
    return figure, panels
