"""Every task of SentEval against its protocol written anew: equal predictions, not only scores."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from declutr.evaluation.scores import Score
from declutr.evaluation.suite import all_tasks
from declutr.evaluation.task import PROTOTYPING, PUBLISHED, Protocol
from declutr.evaluation.tasks import caption_space
from declutr.evaluation.tasks.scored_pairs import STS_SUBSETS
from tests.evaluation import plain_files as files
from tests.evaluation import plain_senteval as plain
from tests.evaluation import published_layout as layout

pytestmark = pytest.mark.slow  # together they take long

WIDTH = 8
WORDS = [*"abcdefghijklmnopqrst"]
TREC = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
SICK = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")


def embed(texts: Sequence[str]) -> np.ndarray:
    """Return means of a random vector for each word: equal words in another order nearly tie."""
    rows = [np.mean([word_vector(word) for word in text.split()], axis=0) for text in texts]
    return np.array(rows, dtype=np.float32)


@cache
def word_vector(word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).normal(size=WIDTH)


def vectors(column: Sequence[Sequence[str]]) -> torch.Tensor:
    return torch.from_numpy(embed([" ".join(words) or "." for words in column]))


class Writer:
    """Draws rows whose labels depend on their words, some equal but for the label, some blank."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def sentence(self, blank: float = 0.0) -> str:
        count = 0 if self.rng.random() < blank else self.rng.integers(1, 6)
        return " ".join(self.rng.choice(WORDS, count))

    def rows(self, count: int, classes: int, sentences: int = 1, blank: float = 0.0) -> list[tuple]:
        found = []
        for number in range(count):
            texts = [self.sentence(blank if place == 0 else 0) for place in range(sentences)]
            known = np.prod(embed([text or "." for text in texts]), axis=0)[:classes].argmax()
            label = known if self.rng.random() < 0.8 else self.rng.integers(classes)
            found.append((int(label), *texts))
            if number % 9 == 0:  # an equal sentence of another class, or an equal pair
                found[-1] = (found[-1][0], *[texts[-1]] * sentences)
                found.append(((found[-1][0] + 1) % classes, *[texts[-1]] * sentences))
        return found

    def scored(self, count: int) -> list[tuple]:
        return [(label / 2 + self.rng.integers(3) / 4, *pair) for label, *pair in self.pairs(count)]

    def pairs(self, count: int) -> list[tuple]:
        return self.rows(count, WIDTH, sentences=2, blank=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("data"))


def write_all(folder: Path) -> Path:
    """Write every task; `scripts/official_senteval.py` takes the folder, too, but for COCO."""
    draw = Writer()
    for task, count in (("CR", 150), ("MPQA", 80)):
        rows = draw.rows(count, 2, blank=0.05)
        texts = [[text for label, text in rows if label == kind] for kind in (1, 0)]
        layout.write_binary(folder, task, *texts)
    layout.write_task(folder, "SST2", *(draw.rows(n, 2) for n in (200, 60, 70)))
    layout.write_task(folder, "SST5", *(draw.rows(n, 5) for n in (200, 60, 70)))
    trec = [[(TREC[label], text) for label, text in draw.rows(n, 6)] for n in (150, 60)]
    layout.write_task(folder, "TREC", *trec)
    layout.write_task(folder, "MRPC", *(draw.rows(n, 2, 2, 0.05) for n in (150, 60)))
    sick = [
        [(SICK[label], *pair, draw.rng.integers(10, 51) / 10) for label, *pair in rows]
        for rows in (draw.rows(n, 3, 2, 0.05) for n in (150, 50, 60))
    ]
    layout.write_task(folder, "SICK", *sick)
    layout.write_task(folder, "STS-B", *(draw.scored(n) for n in (150, 50, 60)))
    layout.write_snli(folder, *(draw.rows(n, 3, 2, 0.05) for n in (200, 60, 70)))
    probing = [[(f"L{9 - label}", text) for label, text in draw.rows(n, 4)] for n in (200, 60, 70)]
    layout.write_probing(folder, "sentence_length", *probing)
    for task, subsets in STS_SUBSETS.items():
        for subset in subsets:
            rows = [*draw.scored(25), ("", "not scored", "at all"), *draw.scored(5)]
            layout.write_sts(folder, task, subset, rows)
    captions = [[f"{draw.sentence()} {n}" for n in range(5 * images)] for images in (40, 20, 20)]
    images = [embed(texts).reshape(-1, 5, WIDTH).mean(axis=1) for texts in captions]
    layout.write_coco(folder, *zip(images, captions, strict=True))
    return folder


def ours(name: str, data: Path, protocol: Protocol) -> dict[str, Score]:
    task = next(task for task in all_tasks(data, protocol) if task.name == name)
    assert set(task.sentences())  # as a run does first
    return {score.name: score for score in task.scores(embed)}


def parts_of(name: str, data: Path) -> tuple[int, list[files.Rows]]:
    """Return the number of classes and the parts of a task, each in SentEval's order."""
    down = data / "downstream"
    if name in layout.BINARY:
        return 2, [files.by_length(files.read_binary(down / name, *layout.BINARY[name]))]
    if name == "SNLI":
        return 3, [files.read_snli(down / name, part) for part in layout.THREE]
    if name == "Length":
        return 4, files.read_probing(data / "probing" / "sentence_length.txt")
    kind = "SICK" if name.startswith("SICK") else name
    place, splits, heading, _ = layout.LAYOUTS[kind]
    columns: dict[str, tuple[Callable, tuple, Callable]] = {
        "SST2": (files.read_columns, (1, 0), int),
        "MRPC": (files.read_columns, (0, 3, 4), int),
        "SICK-E": (files.read_columns, (4, 1, 2), SICK.index),
        "SICK-R": (files.read_columns, (3, 1, 2), float),
        "STS-B": (files.read_columns, (4, 5, 6), float),
        "SST5": (files.read_sst5, (), int),
        "TREC": (files.read_trec, (), int),
    }
    read, arguments, known = columns[name]
    options = {"heading": bool(heading)} if arguments else {}
    parts = [read(data / place.format(part), *arguments, **options) for part in splits]
    classes = {"SST5": 5, "TREC": 6, "SICK-E": 3}.get(name, 2)
    return classes, [files.by_length([(known(r[0]), *r[1:]) for r in rows]) for rows in parts]


def features(rows: files.Rows, all_of_both: bool = False) -> torch.Tensor:
    u, *rest = (vectors(column) for column in list(zip(*rows, strict=True))[1:])
    if not rest:
        return u
    v = rest[0]
    both = torch.cat([u, v, u * v, (u - v).abs()], 1)
    return both if all_of_both else torch.cat([(u - v).abs(), u * v], 1)


HIDDEN = replace(PUBLISHED, hidden=6)
CLASSIFIED = [
    ("CR", replace(PROTOTYPING, kfold=3, batch_size=48, max_epoch=30)),
    ("MPQA", replace(PUBLISHED, kfold=3, max_epoch=20, seed=5)),
    ("TREC", replace(PUBLISHED, epoch_size=2, max_epoch=12, seed=5)),
    ("MRPC", replace(PROTOTYPING, kfold=3)),
    ("MRPC", replace(PROTOTYPING, hidden=6, kfold=3, seed=5)),
    ("SST2", PUBLISHED),
    ("SST5", replace(PROTOTYPING, hidden=6)),
    ("SICK-E", HIDDEN),
    ("SNLI", PUBLISHED),
    ("SNLI", replace(PROTOTYPING, hidden=6)),
    ("Length", replace(PROTOTYPING, epoch_size=1, tenacity=1)),
    ("Length", PUBLISHED),
]
WHOLE = [
    (name, protocol)
    for name in ("CR", "MPQA", "TREC", "MRPC", "SST2", "SST5", "SICK-E", "SNLI", "Length")
    for protocol in (PROTOTYPING, PUBLISHED, HIDDEN)
]


def named(case: tuple[str, Protocol]) -> str:
    name, protocol = case
    return f"{name}-{protocol.name}-{protocol.kfold}-{protocol.hidden}-{protocol.seed}"


@pytest.mark.parametrize(
    "case",
    [
        *CLASSIFIED,
        *(pytest.param(case, marks=pytest.mark.long, id=f"whole-{named(case)}") for case in WHOLE),
    ],
    ids=lambda case: named(case),
)
def test_classes_are_those_of_the_plain_protocol(case: tuple[str, Protocol], data: Path) -> None:
    name, protocol = case
    classes, parts = parts_of(name, data)
    x = [features(rows, name == "SNLI") for rows in parts]
    y = [np.array([label for label, *_ in rows]) for rows in parts]
    if len(parts) == 1:
        expected = plain.nested_kfold(x[0], y[0], classes, protocol)
    elif len(parts) == 2:
        expected = plain.kfold(x[0], y[0], classes, x[1], protocol)
    elif name == "SNLI":
        own = replace(protocol, max_epoch=15, epoch_size=1)
        expected = plain.split(x, y, classes, own, penalties=(1e-9,))
    else:
        expected = plain.split(x, y, classes, protocol)
    got = ours(name, data, protocol)["accuracy"].items
    np.testing.assert_array_equal(got["gold"], y[-1])
    np.testing.assert_array_equal(got["predicted"], expected)
    assert len(set(expected)) > 1 or protocol == HIDDEN  # whose few units may learn nothing


@pytest.mark.parametrize(("name", "seed"), [("SICK-R", 1111), ("STS-B", 5)])
def test_trained_similarities_are_those_of_the_plain_protocol(
    name: str, seed: int, data: Path
) -> None:
    train, dev, test = parts_of(name, data)[1]
    golds = [np.array([score for score, *_ in rows]) for rows in (train, dev, test)]
    x = [features(rows) for rows in (train, dev, test)]
    expected = plain.regressor(x[0], golds[0], x[1], golds[1], x[2], seed)
    got = ours(name, data, replace(PUBLISHED, seed=seed))
    items = got["trained Pearson"].items
    # The items have the order of the file; values tell the pairs apart but for equal ones.
    places = [
        np.lexsort([pairs.round(4), gold])
        for pairs, gold in ((items["predicted"], items["gold"]), (expected, golds[2]))
    ]
    np.testing.assert_array_equal(items["gold"][places[0]], golds[2][places[1]])
    np.testing.assert_allclose(items["predicted"][places[0]], expected[places[1]], atol=1e-4)
    assert got["trained Spearman"].value == pytest.approx(
        100 * stats.spearmanr(expected, golds[2])[0], abs=0.05
    )


@pytest.mark.parametrize("task", STS_SUBSETS)
def test_similarities_of_subsets_are_those_of_senteval(task: str, data: Path) -> None:
    got = ours(task, data, PUBLISHED)
    folder = data / "downstream" / "STS" / f"{task}-en-test"
    found = []
    for subset in STS_SUBSETS[task]:
        rows = files.read_subset(folder, subset)
        u, v = (vectors([row[side] for row in rows]).numpy() for side in (1, 2))
        lengths = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
        cosine = (u * v).sum(axis=1) / lengths
        gold = [row[0] for row in rows]
        np.testing.assert_allclose(
            np.sort(got[f"{subset} Pearson"].items["predicted"]), np.sort(cosine), atol=1e-6
        )
        # Cosines that differ by rounding tie here: docs/EVALUATION.md, "Order and ties".
        ties = cosine.astype(np.float64).round(6)
        found.append([stats.pearsonr(cosine, gold)[0], stats.spearmanr(ties, gold)[0]])
    sizes = [len(files.read_subset(folder, subset)) for subset in STS_SUBSETS[task]]
    for kind, each in zip(("Pearson", "Spearman"), np.array(found).T, strict=True):
        assert got[f"mean {kind}"].value == pytest.approx(100 * np.mean(each), abs=1e-3)
        assert got[f"wmean {kind}"].value == pytest.approx(
            100 * np.average(each, weights=sizes), abs=1e-3
        )


def test_captions_are_found_as_by_the_plain_protocol(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are pickles as Python 2 wrote them; the common space is narrow, to save time."""
    assert caption_space.PROJECTED == 1000
    monkeypatch.setattr(caption_space, "PROJECTED", 40)
    parts = []
    for split in ("train", "valid", "test"):
        images, captions = files.read_captions(data / "downstream" / "COCO" / f"{split}.pkl")
        parts.append((torch.from_numpy(images), vectors(captions)))
    got = ours("COCO", data, PUBLISHED)
    ways = zip(
        ("image_to_text", "text_to_image"), plain.caption_ranks(parts, 1111, 40), strict=True
    )
    for way, ranks in ways:
        for k in (1, 5, 10):
            np.testing.assert_array_equal(got[f"{way}_r{k}"].items["value"], ranks < k)
        assert 0 < np.mean(ranks < 5) < 1
