"""`python -m benchmarks study`: a killed grid goes on to the same page; gains have intervals."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import study
from benchmarks.study import grid, lines, running, scoring, starts, tables
from declutr.runs.recipe_parameters import recipe_parameters
from declutr.static_vectors.first_tables import table_of_texts

GRID = """
local trained(name, temperature) =
  { name: name, recipe: "static_declutr", keys: { temperature: temperature } };
{
  order: ["one"],
  starts: { words: { kind: "texts" } },
  parts: { one: { title: "One", tasks: ["STS12"], blocks: [
    { corpora: ["docs"], starts: ["words"], rows: [{ name: "start", recipe: null, keys: {} }],
      seeds: [0] },
    { corpora: ["docs"], starts: ["words"], rows: [trained("a", 0.2), trained("b", 0.1)],
      seeds: [1, 2] },
  ] } },
}
"""


def arguments(folder: Path, *options: str) -> Any:
    (folder / "grid.jsonnet").write_text(GRID)
    given = ["--grid", str(folder / "grid.jsonnet"), "--runs", str(folder / "runs"), "--no-plots"]
    given += ["--corpus", "c", "--data", "d", "--work", str(folder), "--output", str(folder)]
    ((_, args),) = command.parse(["study", *given, *options])
    return args


def outcome(entry: grid.Entry, *_: Any) -> lines.Line:
    """What a run that never ran would give."""
    value = 50.0 + 2 * entry["seed"] + (entry["row"] == "b")
    samples = lines.packed(value + np.linspace(-1, 1, 20))
    machine = {"cpu": "a processor", "threads": 1, "python": "3", "torch": "2"}
    found = {"scores": {"STS12": {"all Spearman": value}}, "samples": {"STS12": samples}}
    about = {"processor_seconds": 3.0, "release": "2", "date": "2030-01-01", "machine": machine}
    return {**entry, **found, "texts": "0" * 16, **about}


def page(folder: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int) -> str:
    """Run the grid, killed after so many runs and in the middle of a line, and write the page."""
    folder.mkdir()
    done = []

    def killed(entry: grid.Entry, *rest: Any) -> lines.Line:
        if len(done) == stop_after:
            raise KeyboardInterrupt
        done.append(entry)
        return outcome(entry)

    monkeypatch.setattr(running, "outcome", killed)
    if stop_after < 5:
        with pytest.raises(KeyboardInterrupt):
            study.run(arguments(folder))
        with (folder / "runs" / "one.jsonl").open("a") as file:
            file.write('{"part": "one", "cor')
        monkeypatch.setattr(running, "outcome", outcome)
    study.run(arguments(folder))
    study.run(arguments(folder, "--page"))
    return (folder / "RESULTS.md").read_text()


def test_a_killed_grid_goes_on_to_the_same_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    whole = page(tmp_path / "whole", monkeypatch, stop_after=9)
    assert page(tmp_path / "killed", monkeypatch, stop_after=3) == whole
    assert "| words | b | 2 | 54.0 +4.0 [-8.7, +16.7] | 3 |" in whole  # of two seeds
    assert "Runs that are not finished" not in whole and "5 runs" in whole
    file = tmp_path / "whole" / "runs" / "one.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    capsys.readouterr()
    study.run(arguments(tmp_path / "whole", "--list"))
    assert capsys.readouterr().out == "one | docs | words | b | seed 2\n1 runs are missing.\n"


def test_a_run_serves_every_part_that_asks_for_no_more() -> None:
    settings = {"start": {"kind": "bm25"}, "recipe": None, "keys": {}}
    entry = {"part": "one", "corpus": "docs", "row": "a", "seed": 1, "settings": settings}
    entry |= {"tasks": ["STS12"], "curve": None, "date": "2030-01-02"}
    line = {**entry, "part": "two", "row": "b", "tasks": ["TREC", "STS12"]}
    assert lines.line_of(entry, [line, {**line, "date": "2030-01-01"}]) is line
    for needs in ({"tasks": ["SUBJ"]}, {"curve": {"tasks": []}}, {"seed": 2}, {"corpus": "other"}):
        assert lines.line_of({**entry, **needs}, [line]) is None
    assert lines.line_of({**entry, "settings": {**settings, "keys": {"lr": 1}}}, [line]) is None


def test_texts_of_several_corpora_come_in_turns(tmp_path: Path) -> None:
    for name, rows in (("a", "h1 a1 a2"), ("b", "h2 b1 b2 b3")):
        (tmp_path / f"{name}.txt").write_text("\n".join(rows.split()) + "\n")
    places = running.Places(tmp_path, tmp_path, tmp_path / "work")
    assert running._joined(("a", "b"), places).read_text() == "a1\nb1\na2\nb2\nb3\n"


def test_probing_tasks_are_cut_evenly(tmp_path: Path) -> None:
    (tmp_path / "probing_surrogate").mkdir()
    marks = [mark for mark in ("tr", "va", "te") for _ in range(60)]
    rows = [f"{mark}\t{at // 30 % 2}\ttext {at}" for at, mark in enumerate(marks)]
    (tmp_path / "probing_surrogate" / "bigram_shift.txt").write_text("\n".join(rows) + "\n")
    (task,) = scoring.tasks_of(["bigram shift"], tmp_path, tmp_path / "held_out", tmp_path / "w")
    assert sorted(task.sentences()) == sorted(f"text {at}" for at in range(0, 180, 30))


def test_a_run_is_of_one_process_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "grid.jsonnet").write_text(GRID)
    first, second, *_ = grid.entries(grid.read_grid(tmp_path / "grid.jsonnet"), "one")
    with running.claimed(first, tmp_path) as mine:
        with running.claimed({**first, "part": "two"}, tmp_path) as again:  # the same run
            assert mine and not again
        with running.claimed(second, tmp_path) as other:
            assert other
    with running.claimed(first, tmp_path) as later:
        assert later


def test_a_damaged_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"a": 1}\n<<<<<<< HEAD\n')
    with pytest.raises(ValueError, match=r"one\.jsonl:2 has '<<<<<<< HEAD'\. Expected an object"):
        lines.read_lines(tmp_path)


def test_shares_are_disjoint_and_complete(tmp_path: Path) -> None:
    (tmp_path / "grid.jsonnet").write_text(GRID)
    every = grid.entries(grid.read_grid(tmp_path / "grid.jsonnet"), "one")
    parts = [study._missing(every, [], arguments(tmp_path, "--share", f"{i}/2")) for i in (1, 2)]
    assert [len(part) for part in parts] == [3, 2]
    assert sorted(map(str, parts[0] + parts[1])) == sorted(map(str, every))


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no part 'statc'"):
        study.run(arguments(tmp_path, "--part", "statc"))


def test_an_order_without_a_part_is_refused(tmp_path: Path) -> None:
    (tmp_path / "grid.jsonnet").write_text(GRID.replace('["one"]', "[]"))
    with pytest.raises(ValueError, match=r"order has \[\], expected all of \['one'\]"):
        grid.read_grid(tmp_path / "grid.jsonnet")


def test_what_is_not_there_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    study.run(arguments(tmp_path))
    assert "5 runs left out, which need the texts docs: docs.txt in --corpus." in (
        capsys.readouterr().out
    )
    options = arguments(tmp_path)
    options.corpus = tmp_path
    (options.corpus / "docs.txt").write_text("other texts\n")
    lines.append(options.runs, {"part": "one", "corpus": "docs", "seed": 9, "texts": "0" * 16})
    study.run(options)
    assert "which need the texts docs of the finished runs: " in capsys.readouterr().out


def test_a_start_made_apart_is_told_from_that_of_finished_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"kind": "pretrained", "layers": 1}
    line: Any = {"start": "small", "settings": {"start": spec | {"pooling": "cls"}}}
    made_here, made_there = line | {"weights": "0" * 16}, line | {"weights": "1" * 16}
    known = lines.weights_of_starts([made_here, made_here])
    for other, digest in ((made_there, "1" * 16), (line, "unknown")):
        with pytest.raises(
            ValueError, match=f"start small with the digests {'0' * 16} and {digest}"
        ):
            lines.weights_of_starts([made_here, other])
    entry: Any = {"start": "small", "seed": 1, "settings": {"start": spec}}
    monkeypatch.setattr(running, "place_of", lambda *_: str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    places = running.Places(tmp_path, tmp_path, tmp_path)
    place, weights = running._start(entry, tmp_path, places)
    assert place == str(tmp_path) and weights == starts.weights_of(place, spec)
    with pytest.raises(starts.Missing, match=r"the weights of 'small' .* was made apart"):
        running._start(entry, tmp_path, replace(places, weights=known))


def test_settings_of_the_study_are_those_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMER_MODEL", "m")
    found = grid.read_grid()
    every = [entry for part in found["parts"] for entry in grid.entries(found, part)]
    trained = [entry["settings"] for entry in every if entry["settings"]["recipe"]]
    asked: dict[str, dict[str, Any]] = {}
    for settings in trained:
        asked.setdefault(settings["recipe"], {}).update(settings["keys"])
    for recipe, keys in asked.items():  # unknown keys, and those without effect, are refused
        recipe_parameters(recipe, "m", keys, None)
    static = (e["settings"] for e in every if e["part"] == "static")
    of_recipe = next(s["keys"] for s in static if s["recipe"])
    with_keys, without = (
        recipe_parameters("static_declutr", "m", keys, None) for keys in (of_recipe, {})
    )
    assert with_keys.as_dict(quiet=True) == without.as_dict(quiet=True)


@pytest.mark.slow
def test_a_transformer_is_pretrained_in_phases(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(40)]
    rng = np.random.default_rng(0)
    train = tmp_path / "train.txt"
    train.write_text("\n".join(" ".join(rng.choice(words, 60)) for _ in range(6)) + "\n")
    phase = {"num_epochs": 1, "num_anchors": 1, "min_span_len": 4}
    spec = {
        **{"kind": "pretrained", "layers": 1, "hidden_size": 16, "heads": 2, "vocabulary": 300},
        "keys": {"learning_rate": 1e-3, "batch_size": 2},
        "phases": [phase | {"max_span_len": longest} for longest in (8, 14)],
    }
    place = Path(starts.place_of(spec, 1, train, {}))
    config = json.loads((place / "config.json").read_text())
    assert config["hidden_dropout_prob"] == config["attention_probs_dropout_prob"] == 0.1
    assert config["architectures"] == ["RobertaForMaskedLM"]
    assert Path(starts.place_of(spec, 2, train, {})) == place  # kept, and the same for all seeds
    assert len(starts.weights_of(str(place), spec) or "") == 16


def test_factors_are_compared_in_pairs() -> None:
    """Two values of a factor, over all pairs of runs that are alike in the others."""

    def group(a: int, b: int, *scores: float) -> tables.Group:
        of_seeds: list[Any] = [
            {
                "scores": {"STS12": {"all Spearman": score}},
                "samples": {"STS12": lines.packed(drawn)},
            }
            for score in scores
        ]
        return tables.Group("docs", "words", f"{a}{b}", "declutr", of_seeds, 2, {"a": a, "b": b})

    drawn = np.zeros(20)  # test items have no part in it
    every = [group(1, 1, 50, 52), group(2, 1, 51, 54), group(1, 2, 60, 60), group(2, 2, 63, 64)]
    asked = [("a", 2, 1), ("a", 3, 1), ("b", 2, 1)]
    first, second = tables.comparisons([*every, group(2, 3, 0, 0)], ["STS12"], asked)
    assert first["compared"] == "a: 2 less 1" and first["pairs"] == "2"
    # Means over pairs are 57 and 59 of the one, 55 and 56 of the other: 2.5, with a standard error
    # of 1.118 and 1.47 degrees of freedom (Welch)
    assert first["STS12"] == first["mean"] == "+2.5 [-4.4, +9.4]"
    assert second["STS12"].startswith("+10.0 [")


def test_gains_are_bold_where_they_hold_against_their_number() -> None:
    """Holm's correction; of one seed, nothing is said unless nothing is drawn."""

    def group(row: str, value: float, seeds: int = 3, drawn: bool = True) -> tables.Group:
        samples = lines.packed(value + np.random.default_rng(0).normal(0, 1, 200))
        found: list[Any] = [
            {
                "scores": {"STS12": {"all Spearman": value + seed / 100}},
                "samples": {"STS12": samples},
            }
            for seed in range(seeds)
        ]
        recipe = None if row == "start" else "declutr"
        return tables.Group("docs", "words", row, recipe, found, seeds, {}, drawn)

    def unlike(group: tables.Group) -> tables.Group:
        """The same, on samples that say less."""
        value = group.mean("STS12")
        wide = lines.packed(value + np.random.default_rng(1).normal(0, 1, 200))
        return replace(group, lines=[{**line, "samples": {"STS12": wide}} for line in group.lines])

    every = [group("start", 50, 1, False), group("sure", 60), group("one seed", 60, 1)]
    every += [unlike(group("not drawn", 60, 1, False)), unlike(group("near", 54)), group("no", 50)]
    found = tables.certain_gains(every, ["STS12"])
    assert {row for _, _, row, _ in found} == {"sure", "not drawn", "near"}
    alone = {row for _, _, row, _ in tables.certain_gains(every[:1] + every[-2:-1], ["STS12"])}
    many = [*every[:1], *(unlike(group(f"near {i}", 54)) for i in range(40))]
    assert alone == {"near"} and not tables.certain_gains(many, ["STS12"])


def test_every_kind_of_picture_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fake runs: gains, factors, curves and the plane, each shown on the page."""
    pytest.importorskip("matplotlib")

    def with_all(entry: grid.Entry, *_: Any) -> lines.Line:
        value = 50.0 + entry["seed"]
        samples = lines.packed(value + np.linspace(-1, 1, 20))
        scores = {"STS12": {"all Spearman": value}}
        scores["geometry"] = {"alignment": value, "uniformity": -value}
        curve = [{"step": step, "scores": {"STS12/all Spearman": value + step}} for step in (0, 10)]
        return {**outcome(entry), "scores": scores, "samples": {"STS12": samples}, "curve": curve}

    monkeypatch.setattr(running, "outcome", with_all)
    args = arguments(tmp_path)
    args.no_plots = False
    (tmp_path / "grid.jsonnet").write_text(
        GRID.replace(
            'tasks: ["STS12"]',
            'tasks: ["STS12", "geometry"], curve: { tasks: ["STS12"], every_num_steps: 10 }',
        ).replace('order: ["one"]', 'order: ["one", "two"]')
        + """
+ { parts+: { two: $.parts.one { compare: [["t", 0.1, 0.2]], blocks: [
      b { rows: [r + if r.recipe == null then {} else { factors: { t: r.keys.temperature } }
                 for r in b.rows] } for b in $.parts.one.blocks] } },
    overview: { title: "All", tasks: ["STS12"], rows: [
      { part: "one", corpus: "docs", start: "words", row: "a", name: "as a" }] } }
"""
    )
    study.run(args)
    args.page = True
    study.run(args)
    found = {file.name for file in (tmp_path / "results").iterdir()}
    names = {"one.svg", "one-curves.svg", "one-plane.svg", "two.svg"}
    assert found == names | {"two-curves.svg", "two-plane.svg", "overview.svg"}
    assert "as a" in (tmp_path / "results" / "overview.svg").read_text()
    text = (tmp_path / "RESULTS.md").read_text()
    assert all(f"(results/{name})" in text for name in found)


def test_samples_are_kept_to_hundredths() -> None:
    kept = lines.unpacked(lines.packed(np.array([12.345, -3.0, np.nan, 100.0])))
    np.testing.assert_allclose(kept, [12.34, -3.0, np.nan, 100.0], atol=0.006)


def test_the_start_is_that_of_the_command(tmp_path: Path) -> None:
    texts = [
        f"the {a} sees one {b} and the {b} a {a}" for a in ["cat", "dog", "cow"] for b in "xyz"
    ]
    (tmp_path / "train.txt").write_text("\n".join(texts) + "\n")
    spec = {"kind": "texts", "unit": True, "sif": 1e-3, "components": 0, "vocabulary": 100}
    place = starts.place_of({**spec, "dimension": 4}, 0, tmp_path / "train.txt", {})
    from declutr.archives.static_folder import read_static

    expected = table_of_texts(lambda: texts, vocabulary=100, dimension=4)
    np.testing.assert_allclose(read_static(Path(place)).vectors, expected.vectors, atol=1e-6)
    assert scoring._ranked_by_bm25(["cow"], ["a cat", "a cow"], 2).tolist() == [[1, -1]]
    assert tables.Gain(1.0, 0.2, 1.8, 0.02).certain
