"""Pictures: which ones are drawn, and that no text in them overlaps."""

import itertools
from functools import cache

import numpy as np
import pytest

from declutr.evaluation.report import plots
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.plots.embeddings import embedding_map, similarities
from declutr.evaluation.report.plots.scores import dimension_curves
from declutr.evaluation.report.plots.style import shortened
from declutr.evaluation.report.truncated_encoders import WHOLE
from declutr.evaluation.results import Record, record
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import TaskResult

NAMES = ["hash", "words (GloVe 840B, 300 wide)", "org/a-model-with-a-long-name", "d", "e", "f"]
DOWNSTREAM = ["CR", "MR", "MPQA", "SUBJ", "SST2", "SST5", "TREC", "MRPC", "SNLI", "SICK-E"]


def result(task: str, group: str, **scores: Score) -> Record:
    main = next(iter(scores.values())).name
    return record(TaskResult(task, group, main, list(scores.values())), {})


@cache
def results(number: int, same_place: bool = False) -> dict[str, Record]:
    """Make results of encoder `number`; a higher number has better scores."""
    rng = np.random.default_rng(number)
    found = {}
    for task in DOWNSTREAM:
        right = {"predicted": (rng.random(40) < 0.5 + number / 20).astype(int), "gold": np.ones(40)}
        found[task] = result(task, "downstream", a=Score("accuracy", "accuracy", right))
    gold = rng.integers(0, 26, 300) / 5
    pairs = {"predicted": np.tanh(gold * number / 10 + rng.normal(size=300) / 5), "gold": gold}
    for task in ("STS12", "STS13", "STS14"):
        found[task] = result(task, "sts", a=Score("all Spearman", "spearman_all", pairs))
    place = 0 if same_place else number
    means = {"uniformity": -2 - place % 3 / 10, "alignment": 0.5 - place / 100}
    scores = {n: Score(n, "plain_mean", {"value": np.full(3, mean)}) for n, mean in means.items()}
    found["geometry"] = result("geometry", "geometry", **scores)
    labels = np.array(["place", "person", "number"])[rng.integers(3, size=90)]
    items = {"value": np.ones(90), "label": labels, "x": rng.normal(size=90), "y": np.zeros(90)}
    found["map of TREC"] = result("map of TREC", "map", v=Score("variance shown", "mean", items))
    return found


def comparison(count: int, same_place: bool = False) -> Comparison:
    records = {name: dict(results(number, same_place)) for number, name in enumerate(NAMES[:count])}
    return Comparison(NAMES[:count], list(results(0)), records)


def truncated(count: int, kept: tuple[int, ...] = (16, 64, 256)) -> Comparison:
    """Compare encoders of 384 or 768 dimensions and their truncated encoders."""
    whole = comparison(count)
    records, facts = dict(whole.records), {}
    for number, name in enumerate(NAMES[:count]):
        facts[name] = {"description": {"fingerprint": "a", "dimension": 384 * (1 + number % 2)}}
        for place, dimension in enumerate(kept):
            cut = f"{name}@{dimension}"
            records[cut] = results((number + place + 1) % 3)
            about = {"fingerprint": f"a@{dimension}", "dimension": dimension, WHOLE: name}
            facts[cut] = {"description": about}
    return Comparison(list(records), list(results(0)), records, facts)


class TestWithoutMatplotlib:
    def test_the_error_says_how_to_install_it(self, monkeypatch, tmp_path) -> None:
        monkeypatch.setattr(plots, "available", lambda: False)
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'declutr\[plots\]'"):
            plots.draw(comparison(1), tmp_path, {})
        assert list(tmp_path.iterdir()) == []

    def test_it_is_not_needed_to_import_the_package(self) -> None:
        assert isinstance(plots.available(), bool)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("short", "short"),
        ("x" * 26, "x" * 26),
        ("org/a-model-with-a-rather-long-name", "…-with-a-rather-long-name"),
        ("words of a long, long, long file", "words of a lo…ng, long file"),
    ],
)
def test_long_names_are_shortened(name, short) -> None:
    assert shortened(name) == short or len(shortened(name)) == 26
    assert len(shortened(name)) <= 26
    if "/" in name:
        assert shortened(name).startswith("…") and name.endswith(shortened(name)[1:])


class Drawing:
    """A base class with checks for every picture."""

    @pytest.fixture(autouse=True)
    def matplotlib(self):
        return pytest.importorskip("matplotlib", reason="pictures are an extra")

    @staticmethod
    def texts(figure) -> list:
        """Return all visible text of a figure, without ticks beyond the ends of an axis."""
        from matplotlib.text import Text

        figure.canvas.draw()
        beyond = set()
        for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
            low, high = sorted(axis.get_view_interval())
            places = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
            beyond |= {id(label) for place, label in places if not low <= place <= high}
        written = [text for text in figure.findobj(Text) if text.get_text().strip()]
        return [text for text in written if text.get_visible() and id(text) not in beyond]

    def require_readable(self, *figures) -> None:
        """No text may overlap another, or leave the figure."""
        for figure in figures:
            self.inside(figure)
            self.apart(figure)

    def apart(self, figure) -> None:
        renderer = figure.canvas.get_renderer()
        boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in self.texts(figure)]
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            assert not a.shrunk(0.98, 0.9).overlaps(b.shrunk(0.98, 0.9)), (one, other)

    def inside(self, figure) -> None:
        width, height = figure.canvas.get_width_height()
        renderer = figure.canvas.get_renderer()
        for text in self.texts(figure):
            box = text.get_window_extent(renderer)
            assert box.x0 >= -1 and box.y0 >= -1, text
            assert box.x1 <= width + 1 and box.y1 <= height + 1, text


class TestDrawing(Drawing):
    @pytest.mark.parametrize("count", [1, 4])
    def test_every_picture_is_a_png_file(self, tmp_path, count) -> None:
        pictures = plots.draw(comparison(count), tmp_path / "plots", {"an average": {"hash": 1.0}})
        names = [picture.path.name for picture in pictures]
        assert names == ["tasks.png", "plane.png", "similarities.png", "map.png"]
        for picture in pictures:
            assert picture.path.read_bytes().startswith(b"\x89PNG") and picture.caption

    def test_only_pictures_with_results_are_drawn_and_older_ones_removed(self, tmp_path) -> None:
        plots.draw(comparison(1), tmp_path, {})
        only = Comparison(["a"], ["MR"], {"a": {"MR": results(0)["MR"]}})
        assert [picture.path.stem for picture in plots.draw(only, tmp_path, {})] == ["tasks"]
        assert [path.name for path in tmp_path.iterdir()] == ["tasks.png"]
        assert plots.draw(Comparison(["a"], [], {}), tmp_path, {}) == []

    @pytest.mark.parametrize("count", [1, 6])
    def test_no_text_overlaps_another(self, count) -> None:
        from matplotlib import rc_context

        found = comparison(count)
        with rc_context(plots.STYLE):
            figures = [plots.task_bars(found), plots.plane(found, {}), embedding_map(found)]
            self.require_readable(*figures, similarities(found))

    def test_names_of_points_at_one_place_do_not_overlap(self) -> None:
        figure = plots.plane(comparison(5, same_place=True), {})
        shown = {text.get_text() for text in self.texts(figure)}
        assert {shortened(name) for name in NAMES[:5]} <= shown
        self.apart(figure)

    def test_bars_show_values_and_intervals(self) -> None:
        found = comparison(2)
        figure = plots.task_bars(found)
        by_title = {axes.get_title(loc="left") or axes.get_title(): axes for axes in figure.axes}
        axes = by_title["Downstream tasks"]
        widths = sorted(patch.get_width() for patch in axes.patches)
        values = [found.cell(name, task).value for name in NAMES[:2] for task in DOWNSTREAM]
        assert widths == pytest.approx(sorted(values))
        assert [label.get_text() for label in axes.get_yticklabels()] == DOWNSTREAM
        lines = [tuple(line.get_xdata()) for line in axes.lines if len(set(line.get_xdata())) > 1]
        assert found.cell("hash", "MR").interval in lines

    def test_an_encoder_without_a_score_is_marked(self) -> None:
        found = comparison(2)
        del found.records["hash"]["MR"]
        assert "none" in {text.get_text() for text in self.texts(plots.task_bars(found))}

    def test_the_plane_is_coloured_by_a_score_that_all_encoders_have(self) -> None:
        found = comparison(2)
        means = {"first": {"hash": 1.0}, "second": dict.fromkeys(NAMES[:2], 1.0) | {"hash": 3.0}}
        shown = {text.get_text() for text in self.texts(plots.plane(found, means))}
        assert "second" in shown
        shown = {text.get_text() for text in self.texts(plots.plane(found, {}))}
        assert "STS12, all Spearman" in shown

    def test_points_are_at_uniformity_and_alignment(self) -> None:
        (dots,) = plots.plane(comparison(3), {}).axes[0].collections
        expected = [(-2 - number / 10, 0.5 - number / 100) for number in range(3)]
        np.testing.assert_allclose(dots.get_offsets(), expected)

    def test_marks_are_medians_of_cosines(self) -> None:
        found = comparison(1)
        items = found.record("hash", "STS12").main.items
        (axes,) = similarities(found).axes
        marks = [line.get_xdata()[0] for line in axes.lines if line.get_color() == "#222222"]
        parts = [(items["gold"] >= low) & (items["gold"] < low + 1) for low in range(4)]
        medians = [np.median(items["predicted"][part]) for part in parts]
        assert marks[:4] == pytest.approx(medians) and len(marks) == 5

    def test_a_map_has_a_point_for_each_sentence_and_a_legend_of_classes(self) -> None:
        figure = embedding_map(comparison(2))
        assert [len(axes.collections[0].get_offsets()) for axes in figure.axes] == [90, 90]
        assert {"place", "person", "number"} <= {text.get_text() for text in self.texts(figure)}


class TestDimensions(Drawing):
    @pytest.mark.parametrize("count", [1, 6])
    def test_no_text_overlaps_another(self, count) -> None:
        from matplotlib import rc_context

        with rc_context(plots.STYLE):
            for kept in ((1, 2, 256), (16, 24, 32), tuple(2**power for power in range(8))):
                self.require_readable(dimension_curves(truncated(count, kept)))

    def test_other_pictures_show_whole_encoders(self, tmp_path) -> None:
        found = plots.draw(truncated(2), tmp_path / "plots", {})
        assert found[-1].path.name == "dimensions.png" and "open mark" in found[-1].caption
        plots.draw(comparison(2), tmp_path / "whole", {})
        for picture in found[:-1]:
            alone = tmp_path / "whole" / picture.path.name
            assert picture.path.read_bytes() == alone.read_bytes(), picture.path.name
        assert dimension_curves(comparison(2)) is None

    def test_a_panel_for_each_group_with_means_and_tasks(self) -> None:
        found = truncated(2)
        downstream, similar = dimension_curves(found).axes
        assert downstream.get_title() == "Downstream tasks, mean of 10"
        assert similar.get_title() == "Semantic similarity, mean of 3"
        lines: dict[tuple, list] = {}
        for line in downstream.lines:
            if len(line.get_xdata()) > 1:
                lines.setdefault(tuple(line.get_xdata()), []).append(list(line.get_ydata()))
        assert list(lines) == [(384, 256, 64, 16), (768, 256, 64, 16)]
        for name, drawn in zip(NAMES, lines.values(), strict=False):
            names = [name, *(f"{name}@{dimension}" for dimension in (256, 64, 16))]
            by_task = [[found.cell(n, task).value for n in names] for task in DOWNSTREAM]
            assert drawn[:10] == by_task
            np.testing.assert_allclose(drawn[10], np.mean(by_task, axis=0))

    def test_a_single_task_has_intervals_and_its_own_name(self) -> None:
        found = truncated(1)
        only = Comparison(found.encoders, ["STS12"], found.records, found.facts)
        (axes,) = dimension_curves(only).axes
        assert axes.get_title() == "STS12" and axes.get_ylabel() == "all Spearman, %"
        (band,) = axes.collections
        names = ["hash", "hash@256", "hash@64", "hash@16"]
        bounds = [bound for n in names for bound in found.cell(n, "STS12").interval]
        corners = set(band.get_paths()[0].vertices[:, 1].round(9))
        assert corners == set(np.round(bounds, 9))

    def test_the_axis_has_a_minimum_range(self) -> None:
        found = truncated(1)
        same = dict.fromkeys(found.records, found.records["hash"])
        axes = dimension_curves(Comparison(found.encoders, ["MR"], same, found.facts)).axes[0]
        low, high = axes.get_ylim()
        assert high - low >= 6
