"""What all pictures have in common: colours, letters, names that fit."""

from __future__ import annotations

import math
from typing import Any

# Okabe and Ito's palette (2008), which colour-blind readers can tell apart; yellow, the palest, is
# left out.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#444444")
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
}


def shortened(name: str, longest: int = 26) -> str:
    """A name that fits: without its beginning, or its middle, if it is long."""
    if len(name) <= longest:
        return name
    if "/" in name:  # a folder, or a name of a hub: its end tells most
        return f"…{name[1 - longest :]}"
    tail = (longest - 1) // 2
    return f"{name[: longest - 1 - tail]}…{name[-tail:]}"


def new_figure(width: float, height: float, layout: Any = "constrained") -> Any:
    """A figure of so many inches, drawn without a display and apart from the user's pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)  # no window system, whatever the user has set
    return figure


def new_panels(count: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """A figure with that many panels, three in a row at most (or two and two)."""
    columns = 2 if count == 4 else min(count, 3)
    rows = math.ceil(count / columns)
    figure = new_figure(width * columns + 0.5, height * rows + 0.5)
    panels = [figure.add_subplot(rows, columns, place + 1) for place in range(count)]
    return figure, panels
