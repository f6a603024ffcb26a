"""Safe reading of pickles: plain data are read in every protocol, others are refused unrun."""

import os
import pickle
from pathlib import Path
from typing import Any

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


def loaded(folder: Path, content: bytes) -> Any:
    path = folder / "file.pkl"
    path.write_bytes(content)
    return load_plain_pickle(path)


def refused(folder: Path, content: bytes, message: str) -> None:
    with pytest.raises(BrokenData, match=f"file.pkl {message}"):
        loaded(folder, content)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_are_read(protocol: int, tmp_path: Path) -> None:
    back = loaded(tmp_path, pickle.dumps(PLAIN, protocol))
    assert back.keys() == PLAIN.keys()
    for name, value in PLAIN.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(back[name], value)
            assert back[name].dtype == value.dtype
        else:
            assert back[name] == value


def test_arrays_that_python_2_wrote_are_read(tmp_path: Path) -> None:
    # numpy's names at that time, and byte strings.
    content = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(I2\ntcnumpy\ndtype\n(S'f4'\nI0\nI1\ntR(I3\nS'<'\nNNNI-1\nI-1\nI0\ntb"
        b"I00\nS'\\x00\\x00\\x80?\\x00\\x00\\x00@'\ntb."
    )
    np.testing.assert_array_equal(loaded(tmp_path, content), np.array([1, 2], np.float32))


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    run = Runs(tmp_path / "made")
    refused(tmp_path, pickle.dumps({"features": run}), r"names \w+.mkdir; only numpy")
    array = [np.array([run], dtype=object)]
    refused(tmp_path, pickle.dumps({"features": array}), r"(names \w+.mkdir|has an array of .*O)")
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
    refused(tmp_path, pickle.dumps({"features": forged}), "")


def test_other_dtypes_are_read(tmp_path: Path) -> None:
    arrays = [
        np.array([1.5, -2], dtype=">f4"),
        np.array(["caf\u00e9", "x"]),
        np.array([True, False]),
        np.float32(3),
        np.zeros((0, 3)),
    ]
    found = loaded(tmp_path, pickle.dumps(arrays))
    for back, array in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(back, array)
        assert back.dtype == array.dtype


def test_only_latin_1_is_encoded(tmp_path: Path) -> None:
    content = b"c_codecs\nencode\n(Vx\nVidna\ntR."
    refused(tmp_path, content, r"encodes bytes with 'idna'")


@pytest.mark.parametrize("left", [0, 10, 200])
def test_a_truncated_pickle_is_named(left: int, tmp_path: Path) -> None:
    refused(tmp_path, pickle.dumps(PLAIN)[:left], "cannot be unpickled.*Get it anew")


def test_a_missing_pickle_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"no.pkl is not there"):
        load_plain_pickle(tmp_path / "no.pkl")
