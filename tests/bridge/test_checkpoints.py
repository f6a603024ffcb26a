"""What AllenNLP saves can be loaded: states of schedulers and callbacks, caches of tensors."""

import datetime
import importlib
import io
import os
import pickle
from collections import OrderedDict, defaultdict, deque
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy
import pytest
import torch
from allennlp.training import TrainerCallback

from declutr.bridge import checkpoints

STATE = {
    "array": numpy.arange(6.0).reshape(2, 3)[:, ::-1],
    "names": numpy.array(["a", "bc"]),
    "days": numpy.array(["2026-01-01"], dtype="datetime64[D]"),
    "none": numpy.empty((0, 3), dtype=">i2"),
    "single": numpy.array(1j),
    "scalar": numpy.float16(0.5),
    "name": numpy.str_("a"),
    "day": numpy.datetime64("2026-01-01"),
    "ids": {numpy.str_("a"): numpy.int64(1)},
    "last": deque([1, deque([2])], maxlen=3),
    "counts": defaultdict(list, {"a": [1], "b": [deque([2])]}),
    "path": Path("/somewhere/else"),
    "pure": PurePosixPath("relative"),
    "draws": numpy.random.RandomState(0).get_state(),
    "nested": [(deque([1]),), OrderedDict(x=defaultdict(None, y=1))],
    "tensor": torch.ones(2),
}


@pytest.fixture
def no_safe_globals() -> Any:
    """Let torch know only its own safe types."""
    known = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(known)


@pytest.mark.usefixtures("no_safe_globals")
def test_checkpoints_with_numpy_scalars(tmp_path: Path, bare: Any) -> None:
    bare("allennlp.training.checkpointer")
    kinds = [numpy.float64, numpy.float32, numpy.int64, numpy.int32, numpy.bool_]
    state = {kind.__name__: kind(1) for kind in kinds}
    torch.save(state, tmp_path / "state.th")
    with pytest.raises(Exception, match=r"multiarray\.scalar"):
        torch.load(tmp_path / "state.th")
    module = importlib.import_module("allennlp.training.checkpointer")
    assert checkpoints.checkpoint_globals(module)
    assert torch.load(tmp_path / "state.th") == state


@pytest.mark.usefixtures("no_safe_globals")
@pytest.mark.parametrize("key", ["array", "last", "counts", "path"])
def test_the_states_of_callbacks_need_it(key: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="GLOBAL"):
        loaded(STATE[key])


class Marked:
    """An object whose pickle would make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_checkpoints_still_refuse_other_objects(tmp_path: Path) -> None:
    others = [datetime.date(2026, 1, 1), numpy.array([None, Marked(tmp_path / "made")])]
    for other in [Marked(tmp_path / "made"), *others]:
        with pytest.raises(pickle.UnpicklingError):
            loaded({"x": other})
    assert not (tmp_path / "made").exists()


class Pickled:
    """An object with any pickle."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def written(value: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    return buffer.getvalue()


def loaded(value: Any) -> Any:
    return torch.load(io.BytesIO(written(value)))


def test_memory_cannot_be_read_as_objects() -> None:
    build = (3, "|", None, ("a",), {"a": (Pickled(numpy.dtype, ("O", False, True)), 0)}, 8, 1, 0)
    number = Pickled(numpy.dtype, ("f8", False, True), build)
    reconstruct, arguments, _ = numpy.zeros(1).__reduce__()[:3]
    made = Pickled(reconstruct, arguments, (1, (1,), number, False, b"AAAAAAAA"))
    for refused in (made, numpy.zeros(1)):
        with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL \S*_reconstruct"):
            loaded(refused)
    for kind in (number, "O", "|O", "|V8", "<f8,O", "T", "f8", 1):
        with pytest.raises(ValueError, match="kind is"):
            loaded(Pickled(checkpoints.array, (kind, (1,), b"AAAAAAAA")))
    for shape in ((-1,), (1.0,), ([1],), (True,)):
        with pytest.raises(ValueError, match="Expected sizes"):
            loaded(Pickled(checkpoints.array, ("<f8", shape, b"AAAAAAAA")))
    for shape in ((2,), (), (2**62, 4), (0,)):
        with pytest.raises(ValueError, match="has not 7 bytes"):
            loaded(Pickled(checkpoints.array, ("<f8", shape, b"AAAAAAA")))


def test_read_arrays_can_be_written_to() -> None:
    found = loaded(checkpoints._portable(numpy.ones(2)))
    found += 1
    assert found.tolist() == [2, 2]


@TrainerCallback.register("test-stateful")
class Stateful(TrainerCallback):
    """A callback that saves whatever `states` holds, and keeps what it is given back."""

    states: ClassVar[dict[str, Any]] = {}
    loaded: ClassVar[dict[str, Any]] = {}

    def state_dict(self) -> dict[str, Any]:
        return type(self).states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        type(self).loaded = state_dict


@pytest.mark.slow
def test_a_run_that_saves_can_be_resumed(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stateful, "states", STATE)
    trainer = {"callbacks": ["test-stateful"]}
    train(trainer=trainer)
    train(trainer=trainer, recover=True)
    loaded = Stateful.loaded
    for name in ("array", "names", "days", "none", "single"):
        assert loaded[name].dtype == STATE[name].dtype
        numpy.testing.assert_array_equal(loaded[name], STATE[name])
    for name in ("last", "counts", "path", "pure", "scalar", "name", "day", "ids", "nested"):
        assert loaded[name] == STATE[name] and type(loaded[name]) is type(STATE[name])
    assert loaded["last"].maxlen == 3 and loaded["counts"].default_factory is list
    assert type(loaded["counts"]["b"][0]) is deque
    numpy.testing.assert_array_equal(loaded["draws"][1], STATE["draws"][1])


@pytest.mark.slow
def test_a_state_that_could_not_be_loaded_is_not_saved(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stateful, "states", {"began": datetime.date(2026, 1, 1)})
    with pytest.raises(
        ValueError, match=r"callback Stateful cannot be saved.*object of datetime\.date.*numpy"
    ):
        train(trainer={"callbacks": ["test-stateful"]})
    assert not list((tmp_path / "out").glob("training_state*"))


def test_errors_name_what_cannot_be_pickled_at_all() -> None:
    with pytest.raises(ValueError, match=r"callback Odd cannot be saved.*lambda"):
        checkpoints._loadable("Odd", {"x": lambda: 1})


def test_a_state_can_be_any_value() -> None:
    tensor = torch.ones(2)
    assert checkpoints._loadable("Any", tensor) is tensor
    for empty in (None, {}, [], 0, torch.ones(0)):
        assert checkpoints._loadable("Any", empty) is empty or empty == []


TENSORS = [
    torch.arange(6.0).view(2, 3),
    torch.arange(6.0).view(2, 3).t(),
    torch.tensor(3),
    torch.ones(2, dtype=torch.bfloat16),
    torch.tensor([True]),
    torch.ones(2, requires_grad=True),
    torch.ones(2, dtype=torch.uint16),
    torch.arange(9)[2:4],
]


def stored_and_read(cache: Any, tensor: torch.Tensor) -> torch.Tensor:
    cache["key"] = tensor
    cache.cache_cache.clear()
    return cache["key"]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", "ignore:Detected pickle protocol")
def test_a_cache_gives_back_its_tensors(tmp_path: Path, bare: Any) -> None:
    pytest.importorskip("lmdb")
    module = importlib.import_module("allennlp.common.file_utils")
    plain = bare("allennlp.common.file_utils")
    with pytest.raises(pickle.UnpicklingError):
        stored_and_read(plain.TensorCache(tmp_path / "plain"), TENSORS[0])
    assert checkpoints.tensor_caches(plain)
    cache = module.TensorCache(tmp_path / "cache")
    for tensor in TENSORS:
        read = stored_and_read(cache, tensor)
        assert read.equal(tensor) and read.dtype == tensor.dtype and not read.requires_grad
        assert cache["key"] is read
    with pytest.raises(KeyError, match="other"):
        cache["other"]
    del cache
    again = module.TensorCache(tmp_path / "cache", read_only=True)
    assert again["key"].equal(TENSORS[-1])


class Program(torch.nn.Module):
    """A module whose archive runs code when it is loaded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    @torch.jit.export
    def __getstate__(self) -> bool:
        return self.training

    @torch.jit.export
    def __setstate__(self, state: bool) -> None:
        self.training = state
        print("code ran")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_cache_with_what_no_cache_writes_is_refused(tmp_path: Path, capfd: Any) -> None:
    pytest.importorskip("lmdb")
    cache = importlib.import_module("allennlp.common.file_utils").TensorCache(tmp_path / "cache")
    program = io.BytesIO()
    torch.jit.save(torch.jit.script(Program()), program)
    marked = Marked(tmp_path / "made")
    entries = [
        ("program of TorchScript", program.getvalue()),
        ("holds a OrderedDict", written(OrderedDict(x=1))),
        ("did not write", b"garbage"),
        ("before torch 1.6", written(torch.ones(1), _use_new_zipfile_serialization=False)),
        (r"posix\.mkdir|nt\.mkdir", written(marked, pickle_protocol=2)),
        (r"posix\.mkdir|nt\.mkdir", written(marked, pickle_protocol=pickle.HIGHEST_PROTOCOL)),
    ]
    for message, stored in entries:
        with cache.lmdb_env.begin(write=True) as transaction:
            transaction.put(b"key", stored)
        with pytest.raises(pickle.UnpicklingError, match=message):
            cache["key"]
        assert not cache.cache_cache
    assert "code ran" not in capfd.readouterr().out and not (tmp_path / "made").exists()
