"""Safe reading of pickles: plain data are read in every protocol, others are refused unrun."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from declutr.evaluation.safe_pickle import load_plain_pickle
from declutr.evaluation.task import BrokenData, MissingData

PLAIN = {
    "array": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "number": np.float64(1.5),
    "list": [1, "caf\u00e9", None, (2.5, True)],
    "bytes": b"\xff",
    "set": {1, 2},
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_are_read(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "plain.pkl"
    path.write_bytes(pickle.dumps(PLAIN, protocol))
    back = load_plain_pickle(path)
    assert back.keys() == PLAIN.keys()
    for name in ("array", "columns"):
        np.testing.assert_array_equal(back[name], PLAIN[name])
        assert back[name].dtype == PLAIN[name].dtype
    assert {name: back[name] for name in ("number", "list", "bytes", "set")} == {
        name: PLAIN[name] for name in ("number", "list", "bytes", "set")
    }


def test_arrays_that_python_2_wrote_are_read(tmp_path: Path) -> None:
    path = tmp_path / "old.pkl"
    # numpy's names at that time, and byte strings.
    path.write_bytes(
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(I2\ntcnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb"
        b"I00\nS'\\x00\\x00\\x80?\\x00\\x00\\x00@'\ntb."
    )
    np.testing.assert_array_equal(load_plain_pickle(path), np.array([1, 2], np.float32))


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.pkl"
    for wrapped in (Runs(tmp_path / "made"), [np.array([Runs(tmp_path / "made")], dtype=object)]):
        path.write_bytes(pickle.dumps({"features": wrapped}))
        with pytest.raises(
            BrokenData, match=r"bad.pkl (names \w+.mkdir; only numpy|has an array of type .O8.)"
        ):
            load_plain_pickle(path)
    assert not (tmp_path / "made").exists()


class Calls:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple:
        return self.call  # type: ignore[return-value]


FORGED = bytearray(b"A" * 8)  # in place of a pointer


@pytest.mark.parametrize(
    "forged",
    [
        Calls(np.ndarray, (1,), np.dtype("O"), FORGED),
        Calls(np.ndarray, (1,), np.dtype("f8"), FORGED),
        Calls(np.zeros(1).__reduce_ex__(5)[0], FORGED, np.dtype("O"), (1,), "C"),
        Calls(np.float64(0).__reduce__()[0], np.dtype([("a", "O")]), FORGED),
        np.array([None]),
        np.zeros(1, dtype=[("a", "O")]),
    ],
    ids=range(6),
)
def test_arrays_of_pointers_are_refused(forged: object, tmp_path: Path) -> None:
    path = tmp_path / "forged.pkl"
    path.write_bytes(pickle.dumps({"features": forged}))
    with pytest.raises(BrokenData, match=r"forged\.pkl"):
        load_plain_pickle(path)


def test_other_dtypes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "numbers.pkl"
    arrays = [
        np.array([1.5, -2], dtype=">f4"),
        np.array(["caf\u00e9", "x"]),
        np.array([True, False]),
        np.float32(3),
        np.zeros((0, 3)),
    ]
    path.write_bytes(pickle.dumps(arrays))
    for back, array in zip(load_plain_pickle(path), arrays, strict=True):
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype


def test_only_latin_1_is_encoded(tmp_path: Path) -> None:
    path = tmp_path / "bad.pkl"
    path.write_bytes(b"c_codecs\nencode\n(Vx\nVidna\ntR.")
    with pytest.raises(BrokenData, match=r"bad.pkl encodes bytes with 'idna'"):
        load_plain_pickle(path)


@pytest.mark.parametrize("left", [0, 10, 200])
def test_a_truncated_pickle_is_named(left: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.pkl"
    path.write_bytes(pickle.dumps(PLAIN)[:left])
    with pytest.raises(BrokenData, match=r"cut.pkl cannot be unpickled.*Get it anew"):
        load_plain_pickle(path)


def test_a_missing_pickle_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"no.pkl is not there"):
        load_plain_pickle(tmp_path / "no.pkl")
