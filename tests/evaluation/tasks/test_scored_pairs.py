"""Files of scored pairs, valid and broken."""

from pathlib import Path

import pytest

from declutr.evaluation.task import BrokenData, MissingData
from declutr.evaluation.tasks.scored_pairs import read_benchmark, read_sick, read_sts_subset


def write_subset(folder: Path, sentences: str, scores: str) -> None:
    (folder / "STS.input.X.txt").write_text(sentences, encoding="utf-8")
    (folder / "STS.gs.X.txt").write_text(scores, encoding="utf-8")


def test_pairs_without_a_score_are_left_out(tmp_path: Path) -> None:
    # The last score is blank. A reader that strips line ends would lose it.
    write_subset(tmp_path, "a b\tc  d\ne\tf\ng\th\n", "4.5\n\n \n")
    pairs = read_sts_subset(tmp_path, "X")
    assert (pairs.first, pairs.second, pairs.gold.tolist()) == (["a b"], ["c d"], [4.5])
    write_subset(tmp_path, "a\tb\ne\tf\n", "\n0\n")
    assert read_sts_subset(tmp_path, "X").first == ["e"]
    for blank in ("\n", " \n", "\n\n"):
        write_subset(tmp_path, "a\tb\n" * blank.count("\n"), blank)
        with pytest.raises(BrokenData, match=r"STS.gs.X.txt is empty"):
            read_sts_subset(tmp_path, "X")


def test_further_columns_and_rare_line_separators_do_not_matter(tmp_path: Path) -> None:
    write_subset(tmp_path, "a\tb\tfrom here\tfrom there\r\nc\u2028d\te\x85f\r\n", "1\r\n2\r\n")
    pairs = read_sts_subset(tmp_path, "X")
    assert pairs.first == ["a", "c d"]
    assert pairs.second == ["b", "e f"]
    assert pairs.gold.tolist() == [1, 2]


def test_an_empty_sentence_becomes_a_full_stop(tmp_path: Path) -> None:
    write_subset(tmp_path, "\tb\n", "1\n")
    assert read_sts_subset(tmp_path, "X").first == ["."]


def test_faults_of_a_subset_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"STS.input.X.txt is not there"):
        read_sts_subset(tmp_path, "X")
    write_subset(tmp_path, "a\tb\nc\td\n", "1\n")
    with pytest.raises(BrokenData, match=r"STS.gs.X.txt has 1 rows, expected 2"):
        read_sts_subset(tmp_path, "X")
    write_subset(tmp_path, "a\tb\nc d\n", "1\n2\n")
    with pytest.raises(BrokenData, match=r"STS.input.X.txt, line 2: expected 2 fields, got 1"):
        read_sts_subset(tmp_path, "X")
    for score in ("nan", "5.1", "-1", "four"):
        write_subset(tmp_path, "a\tb\n", f"{score}\n")
        expected = rf"STS.gs.X.txt, line 1: expected a score from 0 to 5, got '{score}'"
        with pytest.raises(BrokenData, match=expected):
            read_sts_subset(tmp_path, "X")


def test_a_split_of_the_benchmark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "sts-dev.csv"
    file.write_text('news\tf\t2012\t7\t3.25\t"a "b\tc\tlicence\nnews\tf\t2012\t8\t0\td\te\n')
    pairs = read_benchmark(file, 2)
    assert (pairs.first, pairs.second) == (['"a "b', "d"], ["c", "e"])
    assert pairs.gold.tolist() == [3.25, 0]
    assert len(pairs) == 2
    assert pairs.sentences == ['"a "b', "d", "c", "e"]


def test_sorted_pairs_equal_those_of_sentevals_sick_py(tmp_path: Path) -> None:
    file = tmp_path / "sts-train.csv"
    rows = [("a b", "c", 2.0), ("d", "e f", 1.0), ("g", "h", 4.0), ("i", "j k", 0.5)]
    rows.append(("l", "m", 4.0))
    file.write_text("".join(f"n\tf\ty\t7\t{gold}\t{one}\t{two}\n" for one, two, gold in rows))
    pairs = read_benchmark(file).sorted()
    rows.sort(key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]))
    assert [*zip(pairs.first, pairs.second, pairs.gold.tolist(), strict=True)] == rows


def test_a_truncated_benchmark_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sts-dev.csv"
    row = "news\tf\t2012\t7\t3.25\ta b\tc d\n"
    file.write_text(row + row[:-8] + "\n")
    with pytest.raises(BrokenData, match=r"sts-dev.csv, line 2: expected 7 fields, got 6"):
        read_benchmark(file, 2)
    file.write_text(row + row[:-2])
    with pytest.raises(BrokenData, match=r"ends in the middle of line 2, expected 3 lines"):
        read_benchmark(file, 3)
    file.write_text("")
    with pytest.raises(BrokenData, match=r"sts-dev.csv is empty"):
        read_benchmark(file, 3)


def test_a_split_of_sick_is_read(tmp_path: Path) -> None:
    file = tmp_path / "SICK_trial.txt"
    heading = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    file.write_text(heading + "4\ta\tb\t3.6\tNEUTRAL\n")
    pairs = read_sick(file, 1)
    assert (pairs.first, pairs.second, pairs.gold.tolist()) == (["a"], ["b"], [3.6])
    file.write_text(heading)
    with pytest.raises(BrokenData, match=r"has a heading and no pair"):
        read_sick(file, 1)
    file.write_text(heading + "4\ta\tb\tNEUTRAL\t3.6\n")
    with pytest.raises(BrokenData, match=r"line 2: expected a score from 0 to 5, got 'NEUTRAL'"):
        read_sick(file, 1)
