"""Tests of averages of word vectors, of intact and broken files, and of random vectors."""

import bz2
import codecs
import gzip
import itertools
import lzma
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.inference.sources import EncoderError, open_encoder
from declutr.inference.sources.random_vectors import hashed_vector
from declutr.system.cache_folder import default_cache_dir

GLOVE = "the 1 2 3\ncat 4 5 6\nsat -1 0.5 1e-2\n. 0 0 9\n"
VECTORS = {"the": [1, 2, 3], "cat": [4, 5, 6], "sat": [-1, 0.5, 0.01], ".": [0, 0, 9]}


@pytest.fixture
def vector_file(tmp_path: Path) -> Callable[..., str]:
    def write(content: str | bytes, name: str = "glove.txt") -> str:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return write


def mean(*words: str) -> np.ndarray:
    return np.mean([VECTORS[word] for word in words], axis=0)


def test_mean_of_words(vector_file: Callable[..., str]) -> None:
    encoder = open_encoder(vector_file(GLOVE))
    texts = ["the cat sat .", "The CAT", "dog cat dog cat the", "", " \t", "dog", "cat"]
    expected = [
        mean("the", "cat", "sat", "."),
        mean("the", "cat"),  # found in lower case only
        mean("cat", "cat", "the"),  # a word that occurs twice counts twice
        *np.zeros((3, 3)),
        VECTORS["cat"],
    ]
    rows = encoder(texts)
    assert np.allclose(rows, expected, atol=1e-6) and not rows[3:6].any()
    assert encoder.dimension == 3
    unknown = {"unknown_words": 3, "sentences_without_known_words": 3}
    assert encoder.counts() == {"words": 13, **unknown}
    encoder(["dog"])
    assert encoder.counts()["unknown_words"] == 4  # counts add up over calls


@pytest.mark.parametrize("case", ["fallback", "exact", "lower"])
def test_case(vector_file: Callable[..., str], case: str) -> None:
    encoder = open_encoder(f"{vector_file('Cat 1 0 0' + chr(10) + GLOVE)}?case={case}")
    upper, lower, none = [1, 0, 0], [4, 5, 6], [0, 0, 0]
    rest = {"fallback": [upper, lower], "exact": [upper, none], "lower": [lower, lower]}[case]
    assert encoder(["Cat", "CAT", "cat"]).tolist() == [*rest, lower]


def test_tokens(vector_file: Callable[..., str]) -> None:
    file = vector_file(GLOVE)
    assert np.array_equal(open_encoder(file)(["The cat sat."]), [mean("the", "cat")])
    apart = open_encoder(f"{file}?tokens=words")(["The cat sat."])
    assert np.allclose(apart, [mean("the", "cat", "sat", ".")])


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("glove.txt.gz", gzip.compress),
        ("glove.txt.xz", lzma.compress),
        ("glove.txt", bz2.compress),
        ("wiki.vec", bytes),
        ("named.gz.txt", gzip.compress),
    ],
)
@pytest.mark.parametrize("header", ["", "4 3\n"])
def test_compressed_files_and_headers_are_read(
    vector_file: Callable[..., str], name: str, pack: Callable[[bytes], bytes], header: str
) -> None:
    encoder = open_encoder(f"words:{vector_file(pack((header + GLOVE).encode()), name)}")
    assert np.allclose(encoder(list(VECTORS)), list(VECTORS.values()))


@pytest.mark.parametrize(("pack", "between"), [(bz2.compress, b""), (lzma.compress, b"\0" * 4)])
def test_all_parts_of_a_file_are_read_or_there_is_an_error(
    vector_file: Callable[..., str], pack: Callable[[bytes], bytes], between: bytes
) -> None:
    lines = GLOVE.encode().splitlines(keepends=True)
    parts = [pack(codecs.BOM_UTF8 + lines[0]), between + pack(b"".join(lines[1:]))]
    encoder = open_encoder(vector_file(b"".join(parts)))
    assert np.allclose(encoder(list(VECTORS)), list(VECTORS.values()))
    with pytest.raises(EncoderError, match=r"cannot be read to its end"):
        open_encoder(vector_file(b"X".join(parts)))


def test_irregular_lines_of_published_files_are_read(vector_file: Callable[..., str]) -> None:
    """Read spaces at line ends (fastText), words with spaces, odd bytes, repeated words (GloVe)."""
    content = (
        "cat 1 2 3 \n"
        ". . . 4 5 6 \n"
        "at name@domain.com 7 8 9\n"
        "a\u00a0b 1 1 1\n"  # a no-break space does not separate fields
        "x\u2028y\x85z 2 2 2\n"  # these characters do not end a line
        "cat 9 9 9\n"
    ).encode() + b"caf\xe9 3 3 3"
    table = open_encoder(vector_file(content))
    words = ["cat", ". . .", "at name@domain.com", "a\u00a0b", "x\u2028y\x85z", "caf\ufffd"]
    vectors, known = table.vectors_of(words)  # type: ignore[attr-defined]
    assert known.all()
    assert vectors.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1], [2, 2, 2], [3, 3, 3]]


def test_more_than_a_block_of_lines(vector_file: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("declutr.inference.sources.word_vector_files._LINES", 4)
    words = [f"word{number}" for number in range(23)]
    lines = [f"{word} {number} {-number}" for number, word in enumerate(words)]
    encoder = open_encoder(vector_file("23 2\n" + "\n".join(lines)))
    assert np.array_equal(encoder(words), [[n, -n] for n in range(23)])
    lines[17] = "word17 17 oops"
    with pytest.raises(EncoderError, match=r"line 19: expected a finite number, got 'oops'"):
        open_encoder(vector_file("23 2\n" + "\n".join(lines)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"holds no word vectors"),
        ("cat\n", r"line 1: expected a word and its numbers, got 'cat'"),
        ("3 2\na 1 2\nb 1 2\n", r"promises 3 words, there are 2"),
        ("a 1 2\nb 1\n", r"line 2: expected a word and 2 numbers.*got 2 fields, 'b 1'"),
        ("a 1 2\nb 1 2 3 4\n", r"line 2: expected a word and 2 numbers.*got 5 fields"),
        ("a 1 2\nb 1 \n", r"line 2: expected a word and 2 numbers"),
        ("a 1 2\nb 1 x\n", r"line 2: expected a finite number, got 'x'"),
        ("a 1 2\nb 1 1_0\n", r"line 2: expected a finite number, got '1_0'"),
        ("a 1 2\nb 1 nan\n", r"line 2: expected a finite number, got 'nan'"),
        ("a 1 2\nb 1 1e99\n", r"line 2: expected a finite number, got '1e99'"),
        ("a 1 2\n\nb 1 2\n", r"line 2: .* got nothing"),
        ("a 1 2\nb\t1\t2\n", r"line 2: expected a word and 2 numbers separated by single spaces"),
        (b"PK\x03\x04rest", r"is a zip archive; unpack it"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0\0", r"is a binary file; expected word vectors as text"),
        (
            gzip.compress(GLOVE.encode() * 99, mtime=0)[:-40],
            r"cannot be read to its end.*download it again",
        ),
        (lzma.compress(GLOVE.encode() * 99)[:-40], r"cannot be read to its end"),
        (gzip.compress(b"")[:2] + b"nonsense", r"cannot be read to its end"),
        (None, r"There is no file '.*glove\.txt'"),
    ],
    ids=itertools.count(),  # gzip writes the time, but test ids must not change
)
def test_broken_files_are_reported_with_their_line(
    vector_file: Callable, content: str | bytes | None, message: str, cache_dir: Path
) -> None:
    file = vector_file(content or "")
    if content is None:
        Path(file).unlink()
    for _ in range(2):  # the first attempt must leave nothing behind
        with pytest.raises(EncoderError, match=message) as caught:
            open_encoder(f"words:{file}")
        assert file in str(caught.value)
    assert not list((cache_dir / "word-vectors").glob("unfinished-*"))


def test_the_file_is_read_once(vector_file: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    file = vector_file("once 1 2\nmore 3 4\n")
    first = open_encoder(file)
    monkeypatch.setattr("declutr.inference.sources.word_vector_files._convert", None)
    second = open_encoder(file)
    assert np.array_equal(first(["once more"]), second(["once more"]))
    assert isinstance(second._table.vectors, np.memmap)  # type: ignore[attr-defined]
    with pytest.raises(TypeError):  # other content would be parsed again, by the removed function
        open_encoder(vector_file("once 1 2\nmore 3 5\n"))


@pytest.mark.parametrize("name", ["words.txt", "shape.json", "checksums.json", "vectors.f32"])
def test_damaged_cached_files_are_made_again(
    vector_file: Callable[..., str], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = vector_file(f"damaged 1 2\n{name} 3 4\n")
    expected = open_encoder(file)(["damaged"])
    kept = default_cache_dir() / "word-vectors"
    (path,) = (p for p in kept.glob(f"*/{name}") if name in (p.parent / "words.txt").read_text())
    damaged = bytearray(path.read_bytes())
    damaged[1] ^= 1
    path.write_bytes(damaged)
    if name == "vectors.f32":  # noticed only when they are read
        with pytest.raises(EncoderError, match=r"vectors\.f32' is damaged: .* Start again"):
            open_encoder(file)(["damaged"])
    assert np.array_equal(open_encoder(file)(["damaged"]), expected)
    assert name == "vectors.f32" or "is damaged" in caplog.text


def test_files_cached_by_release_1_5_are_used(vector_file: Callable[..., str], monkeypatch) -> None:
    file = vector_file("kept 1 2\nlong 3 4\nago 7 7\n")
    expected = open_encoder(file)(["kept"])
    for path in (default_cache_dir() / "word-vectors").glob("*/checksums.json"):
        path.unlink()
    monkeypatch.setattr("declutr.inference.sources.word_vector_files._convert", None)
    assert np.array_equal(open_encoder(file)(["kept"]), expected)


def test_fingerprints_of_vector_files(vector_file: Callable[..., str]) -> None:
    def fingerprint(spec: str) -> str:
        return open_encoder(spec).describe()["fingerprint"]

    one = fingerprint(vector_file(GLOVE))
    assert fingerprint(vector_file(GLOVE, "other.txt")) == one
    assert fingerprint(vector_file(GLOVE) + "?case=exact") != one
    assert fingerprint(vector_file(GLOVE.replace("9", "8"))) != one


def test_every_option_is_part_of_the_fingerprint(vector_file: Callable[..., str]) -> None:
    words = vector_file(GLOVE)
    counts = [vector_file(text, f"counts{len(text)}") for text in ("the 5\n", "the 5\ncat 1\n")]
    specs = [words, f"{words}?tokens=words", f"{words}?case=exact", f"{words}?case=lower"]
    specs += [f"{words}?weights=sif", *(f"{words}?weights=sif&counts={c}" for c in counts)]
    for kind in ("random", "random-sentence"):
        specs += [f"{kind}:8", f"{kind}:9", f"{kind}:8?seed=1"]
    specs += ["random:8?combine=sum", "random:8?tokens=words"]
    fingerprints = {open_encoder(spec).describe()["fingerprint"] for spec in specs}
    assert len(fingerprints) == len(specs)


def test_sif_with_counts(vector_file: Callable[..., str]) -> None:
    """Compare with the weights a / (a + p(word)), divided by the number of known words."""
    file = vector_file(GLOVE)
    counts = vector_file("the 90\ncat 9\nsat 1\n", "counts.txt")
    encoder = open_encoder(f"words:{file}?weights=sif&counts={counts}")
    weight = {"the": 0.9, "cat": 0.09, "sat": 0.01, ".": 0.0}
    total = sum(1e-3 / (1e-3 + p) * np.array(VECTORS[word], float) for word, p in weight.items())
    assert np.allclose(encoder(["the cat sat . dog"]), [total / 4], atol=1e-6)
    assert "counts of a file" in encoder.describe()["weights"]
    before = encoder.describe()["fingerprint"]
    vector_file("the 91\ncat 9\nsat 1\n", "counts.txt")
    assert open_encoder(encoder.spec).describe()["fingerprint"] != before


def test_sif_by_zipfs_law(vector_file: Callable[..., str]) -> None:
    encoder = open_encoder(f"{vector_file(GLOVE)}?weights=sif")
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4
    weights = [1e-3 / (1e-3 + 1 / (rank * harmonic)) for rank in (1, 2, 3, 4)]
    expected = np.array(weights)[:, None] * list(VECTORS.values())
    assert np.allclose(encoder(["the", "Cat", "sat", "."]), expected, atol=1e-6)
    assert math.isclose(sum(1 / (rank * harmonic) for rank in (1, 2, 3, 4)), 1)
    assert "Zipf" in encoder.describe()["weights"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("tokens=bpe", "Expected tokens to be one of split, words, got 'bpe'"),
        ("case=upper", "Expected case to be one of"),
        ("weights=idf", "Expected weights to be one of plain, sif"),
        ("counts=x", "counts=FILE is for weights=sif"),
        ("weights=sif&counts=absent", "There is no file 'absent'"),
    ],
)
def test_unknown_options_are_refused(vector_file: Callable, options: str, message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        open_encoder(f"{vector_file(GLOVE)}?{options}")


def test_broken_files_of_counts_are_refused(vector_file: Callable[..., str]) -> None:
    file = vector_file(GLOVE)
    counts = vector_file("the 3\ncat many\n", "counts.txt")
    with pytest.raises(EncoderError, match=r"line 2: expected a word, a space and a whole number"):
        open_encoder(f"{file}?weights=sif&counts={counts}")
    vector_file("", "counts.txt")
    with pytest.raises(EncoderError, match="counts no words"):
        open_encoder(f"{file}?weights=sif&counts={counts}")


TEXTS = st.lists(st.text(alphabet="ab c\n", max_size=12), min_size=1, max_size=8)


@given(TEXTS)
def test_random_words_are_averaged(texts: list[str]) -> None:
    """Compare with a plain loop; neither order nor other texts of a call matter."""
    rows = open_encoder("random:5")(texts)
    for text, row in zip(texts, rows, strict=True):
        words = [hashed_vector(word, 5) for word in text.split()]
        assert np.allclose(row, np.mean(words, axis=0) if words else np.zeros(5), atol=1e-6)
    backwards = open_encoder("random:5")(texts[::-1])[::-1]
    assert np.array_equal(rows, backwards)


def test_random_words_may_be_summed() -> None:
    sums, means = (open_encoder(f"random:4?combine={how}")(["a b c"]) for how in ("sum", "mean"))
    assert np.allclose(sums, 3 * means)


def test_hashed_vectors() -> None:
    # The pinned numbers must be the same on every machine and in every release.
    assert np.allclose(hashed_vector("cat", 3), PINNED, atol=1e-9)
    assert np.array_equal(hashed_vector("cat", 3), hashed_vector("cat", 5)[:3])
    many = np.stack([hashed_vector(f"w{number}", 64) for number in range(2000)])
    assert abs(many.mean()) < 0.02 and abs(many.var() - 1) < 0.02
    unit = many / np.linalg.norm(many, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(2000, 1)]
    assert abs(cosines.mean()) < 1e-3 and abs(cosines.std() - 64**-0.5) < 1e-3
    assert not np.allclose(hashed_vector("cat", 3), hashed_vector("cat", 3, seed=1))
    assert np.isfinite(hashed_vector("\ud800", 3)).all()  # a lone surrogate, as in broken data


PINNED = [-0.1358822671, -1.3834904929, -0.3453014429]


def test_random_sentences_depend_on_text_and_seed() -> None:
    encoder = open_encoder("random-sentence:6")
    rows = encoder(["a b", "b a", "", "a b", " "])
    assert rows.shape == (5, 6) and encoder.dimension == 6
    assert np.array_equal(rows[0], rows[3])
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    # Of the 10 pairs, only that of the repeated text has equal vectors.
    assert (apart[np.triu_indices(5, 1)] > 0.1).sum() == 9
    other = open_encoder("random-sentence:6?seed=1")
    assert not np.allclose(other(["a b"]), rows[:1])
    assert other.describe()["fingerprint"] != encoder.describe()["fingerprint"]


DIMENSIONS = "Expected a dimension of at least 1, got"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        *((f"random{s}", DIMENSIONS) for s in (":0", ":x", "-sentence:-3", ":1.5")),
        ("random:4?combine=max", "Expected combine to be one of mean, sum, got 'max'"),
    ],
)
def test_random_encoders_of_another_kind_are_refused(spec: str, message: str) -> None:
    with pytest.raises(EncoderError, match=message):
        open_encoder(spec)
