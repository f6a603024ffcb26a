"""Similarity tasks in every convention, against scipy and averages by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from declutr.evaluation.task import PUBLISHED, BrokenData, MissingData, Task
from declutr.evaluation.tasks.relatedness import SubsetSimilarity, cosines, tasks
from declutr.evaluation.tasks.scored_pairs import STS_SUBSETS
from tests.evaluation.fakes import hashed
from tests.evaluation.tasks.data_files import (
    Pairs,
    cut,
    task_named,
    values,
    write,
    write_benchmark,
    write_sick,
)

BENCHMARK = "downstream/STS/STSBenchmark"


def random_pairs(count: int, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    golds = [round(float(rng.uniform(0, 5)), 2) for _ in range(count)]
    return [(f"first {seed} {n}", f"second {seed} {n}", gold) for n, gold in enumerate(golds)]


def write_sts(folder: Path, subsets: dict[str, Pairs]) -> None:
    for subset, pairs in subsets.items():
        write(folder / f"STS.input.{subset}.txt", [f"{a}\t{b}" for a, b, _ in pairs])
        write(folder / f"STS.gs.{subset}.txt", [str(gold) for *_, gold in pairs])


def three_splits(seed: int) -> dict[str, Pairs]:
    sizes = {"train": 40, "dev": 15, "test": 20}
    return {split: random_pairs(size, seed + n) for n, (split, size) in enumerate(sizes.items())}


def knowing(pairs: Pairs, exactly: bool = True) -> Callable[[list[str]], np.ndarray]:
    """Make an encoder whose cosines are the gold scores, or have the same order."""
    angle = {first: 0.0 for first, *_ in pairs}
    for _, second, gold in pairs:
        angle[second] = np.arccos(gold / 5) if exactly else np.pi * (1 - gold / 5)
    return lambda texts: np.array([[np.cos(angle[t]), np.sin(angle[t])] for t in texts])


def found(data: Path) -> dict[str, Task]:
    return {task.name: task for task in tasks(data, PUBLISHED)}


def cosine_of(first: str, second: str) -> float:
    u, v = hashed([first])[0], hashed([second])[0]
    return float(u @ v / np.sqrt((u @ u) * (v @ v)))


def correlation(measure: str, pairs: Pairs) -> float:
    oracle = {"Pearson": stats.pearsonr, "Spearman": stats.spearmanr}[measure]
    predicted = [cosine_of(first, second) for first, second, _ in pairs]
    return 100 * float(oracle(predicted, [gold for *_, gold in pairs])[0])


def test_cosines_by_hand() -> None:
    first = np.array([[1, 0], [3, 4], [0, 0], [1, 1]], np.float32)
    second = np.array([[0, 2], [3, 4], [1, 1], [-2, -2]], np.float32)
    np.testing.assert_allclose(cosines(first, second), [0, 1, 0, -1], atol=1e-12)


def bag_of_words(texts: Sequence[str], width: int = 40) -> np.ndarray:
    """Return means of random word vectors in float32, whose rounding depends on the word order."""
    words = {word: np.random.default_rng(list(word.encode())) for t in texts for word in t.split()}
    of = {word: rng.standard_normal(width).astype(np.float32) for word, rng in words.items()}
    return np.stack([np.mean([of[word] for word in text.split()], axis=0) for text in texts])


def test_equal_vectors_have_cosine_1_whatever_their_rounding() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((500, 37)) * 10.0 ** rng.integers(-9, 9, (500, 1))).astype(np.float32)
    assert set(cosines(x, x).tolist()) == {1.0}
    assert set(cosines(x, -3 * x).tolist()) == {-1.0}
    nearly = x * (1 + 1e-6 * rng.standard_normal(x.shape)).astype(np.float32)
    assert set(cosines(x, nearly).tolist()) == {1.0}
    # The pairs are symmetric, and there are no other ties.
    assert len(set(cosines(x, x[::-1]).tolist())) == 250


def test_ranks_do_not_follow_rounding(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pairs: Pairs = []
    for number in range(120):
        words = [f"w{n}" for n in rng.integers(0, 60, rng.integers(4, 12))]
        other = rng.permutation(words).tolist() if number % 3 else [*words[1:], "x", "y"]
        pairs.append((" ".join(words), " ".join(other), round(float(rng.uniform(0, 5)), 2)))
    write_benchmark(tmp_path / BENCHMARK, dict.fromkeys(("train", "dev", "test"), pairs))
    task = task_named("STS-B", tasks, tmp_path, replace(PUBLISHED, regressor=False))

    def backwards(texts: Sequence[str]) -> np.ndarray:
        return bag_of_words([" ".join(text.split()[::-1]) for text in texts])

    forwards, back = (values(task, encode) for encode in (bag_of_words, backwards))
    assert forwards["cosine Spearman"] == back["cosine Spearman"]
    same = [sorted(first.split()) == sorted(second.split()) for first, second, _ in pairs]
    vectors = [bag_of_words([pair[side] for pair in pairs]).astype(np.float64) for side in (0, 1)]
    lengths = np.prod([np.linalg.norm(each, axis=1) for each in vectors], axis=0)
    exact = np.where(same, 1.0, (vectors[0] * vectors[1]).sum(axis=1) / lengths)
    expected = stats.spearmanr(exact, [gold for *_, gold in pairs])[0]
    assert forwards["cosine Spearman"] == pytest.approx(100 * expected)


def test_every_task_exists_without_data(tmp_path: Path) -> None:
    every = found(tmp_path)
    assert list(every) == ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
    for task in every.values():
        assert task.group == "sts"
        with pytest.raises(MissingData, match="is not there"):
            task.sentences()


def test_the_sizes_of_sts_equal_those_of_mteb() -> None:
    sizes = {name: sum(subsets.values()) for name, subsets in STS_SUBSETS.items()}
    assert sizes == {"STS12": 3108, "STS13": 1500, "STS14": 3750, "STS15": 3000, "STS16": 1186}


def test_subsets_are_scored_in_all_conventions(tmp_path: Path) -> None:
    sizes = {"FNWN": 8, "headlines": 25, "OnWN": 14}
    subsets = {name: random_pairs(size, seed) for seed, (name, size) in enumerate(sizes.items())}
    write_sts(tmp_path / "downstream/STS/STS13-en-test", subsets)
    got = values(found(tmp_path)["STS13"], hashed)
    for measure in ("Pearson", "Spearman"):
        each = {name: correlation(measure, pairs) for name, pairs in subsets.items()}
        for name, expected in each.items():
            assert got[f"{name} {measure}"] == pytest.approx(expected)
        assert got[f"mean {measure}"] == pytest.approx(sum(each.values()) / 3)
        weighted = 8 * each["FNWN"] + 25 * each["headlines"] + 14 * each["OnWN"]
        assert got[f"wmean {measure}"] == pytest.approx(weighted / 47)
        together = [pair for pairs in subsets.values() for pair in pairs]
        assert got[f"all {measure}"] == pytest.approx(correlation(measure, together))
    assert got["MTEB Spearman"] == got["all Spearman"]
    assert len(set(got.values())) == len(got) - 1


def test_an_encoder_that_knows_the_gold_scores_is_perfect(tmp_path: Path) -> None:
    subsets = {name: random_pairs(10, n) for n, name in enumerate(STS_SUBSETS["STS16"])}
    write_sts(tmp_path / "downstream/STS/STS16-en-test", subsets)
    pairs = [pair for part in subsets.values() for pair in part]
    for value in values(found(tmp_path)["STS16"], knowing(pairs)).values():
        assert value == pytest.approx(100)
    only_order = values(found(tmp_path)["STS16"], knowing(pairs, exactly=False))
    assert only_order["all Spearman"] == pytest.approx(100)
    assert 90 < only_order["all Pearson"] < 99.9


def test_a_missing_subset_is_an_error_and_not_a_smaller_average(tmp_path: Path) -> None:
    folder = tmp_path / "downstream/STS/STS13-en-test"
    write_sts(folder, {name: random_pairs(5, 0) for name in ("FNWN", "OnWN")})
    expected = r"STS.input.headlines.txt is not there. STS13 is all of FNWN, headlines, OnWN"
    with pytest.raises(BrokenData, match=expected):
        found(tmp_path)["STS13"].sentences()


def test_another_size_than_the_published_is_noted(tmp_path: Path) -> None:
    write_sts(tmp_path / "x", {"A": random_pairs(6, 0), "B": random_pairs(7, 1)})
    task = SubsetSimilarity("X", tmp_path / "x", {"A": 6, "B": 8})
    assert task.notes() == ["7 pairs in B where the published data has 8: compare with care"]
    assert SubsetSimilarity("X", tmp_path / "x", {"A": 6, "B": 7}).notes() == []


def test_the_benchmark_is_scored_by_cosine(tmp_path: Path) -> None:
    splits = three_splits(0)
    write_benchmark(tmp_path / BENCHMARK, splits)
    got = values(found(tmp_path)["STS-B"], hashed)
    for measure in ("Pearson", "Spearman"):
        expected = correlation(measure, splits["test"])
        assert got[f"cosine {measure}"] == pytest.approx(expected)
        assert got[f"cosine {measure} dev"] == pytest.approx(correlation(measure, splits["dev"]))
    assert got["MTEB Spearman"] == got["cosine Spearman"]


def test_mteb_scores_all_splits_of_sick(tmp_path: Path) -> None:
    splits = three_splits(5)
    write_sick(tmp_path / "downstream/SICK", splits)
    got = values(found(tmp_path)["SICK-R"], hashed)
    together = [pair for pairs in splits.values() for pair in pairs]
    assert got["MTEB Spearman"] == pytest.approx(correlation("Spearman", together))
    assert got["cosine Spearman"] == pytest.approx(correlation("Spearman", splits["test"]))


def test_the_trained_regressor_learns_what_cosines_do_not_tell(tmp_path: Path) -> None:
    """The score depends on a single feature |u - v| among others that are random."""
    splits = three_splits(3)
    write_benchmark(tmp_path / BENCHMARK, splits)
    gold = {second: score for pairs in splits.values() for _, second, score in pairs}

    def encode(texts: list[str]) -> np.ndarray:
        vectors = hashed(texts) / 10
        vectors[:, 0] = [gold.get(text, 0) for text in texts]
        return vectors

    task = found(tmp_path)["STS-B"]
    got = values(task, encode)
    assert got["trained Spearman"] > 95 and got["trained Pearson"] > 90
    assert got["trained Spearman dev"] > 95 and got["trained Pearson dev"] > 90
    assert got["cosine Spearman"] < 80
    assert values(task, encode) == got  # a second time, with the same result


def test_without_the_regressor_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_benchmark(tmp_path / BENCHMARK, three_splits(3))
    everything = values(found(tmp_path)["STS-B"], hashed)

    regressor = "declutr.evaluation.classifiers.relatedness_regressor"
    monkeypatch.setattr(f"{regressor}.trained_relatedness", None)
    task = task_named("STS-B", tasks, tmp_path, replace(PUBLISHED, regressor=False))
    without = {name: value for name, value in everything.items() if "trained" not in name}
    assert values(task, hashed) == without
    assert len(without) < len(everything)
    train = {text for pair in three_splits(3)["train"] for text in pair[:2]}
    assert not train & set(task.sentences())


def test_another_folder_in_the_layout_is_a_task_of_its_own_name(tmp_path: Path) -> None:
    write_benchmark(tmp_path / "downstream/STS/STSBenchmark-mine", three_splits(0))
    (tmp_path / "downstream/STS/notes").mkdir()
    every = found(tmp_path)
    assert list(every)[5:] == ["STS-B", "STSBenchmark-mine", "SICK-R"]
    with pytest.raises(MissingData, match=r"STSBenchmark/sts-train.csv is not there"):
        every["STS-B"].sentences()
    mine = every["STSBenchmark-mine"]
    assert len(mine.sentences()) == 150
    note = "40 pairs in train where the published data has 5,749: compare with care"
    assert mine.notes()[0] == note


def test_only_the_published_benchmark_has_a_known_length(tmp_path: Path) -> None:
    for name in ("STSBenchmark", "STSBenchmark-mine"):
        folder = tmp_path / "downstream/STS" / name
        write_benchmark(folder, three_splits(0))
        cut(folder / "sts-dev.csv", 1)
    every = found(tmp_path)
    assert len(every["STSBenchmark-mine"].sentences()) == 150
    message = r"sts-dev.csv ends in the middle of line 15, expected 1500"
    with pytest.raises(BrokenData, match=message):
        every["STS-B"].sentences()
