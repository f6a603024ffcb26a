"""A checkpoint is complete or does not count, wherever writing it is interrupted."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.checkpointer import Checkpointer
from allennlp.training.trainer import TrainerCheckpoint

from declutr.training import checkpointer as module
from declutr.training.checkpointer import AtomicCheckpointer
from tests.training.conftest import Killed

KINDS = ("model", "training")  # of files, two of which are a checkpoint


def trainer_at(epochs: int, batches: int, value: float = 0.0) -> Any:
    """Return an object with the attributes of a trainer that a checkpointer uses."""
    done = {"epochs_completed": epochs, "batches_in_epoch_completed": batches, "value": value}
    state = TrainerCheckpoint({"weight": torch.full((1000,), value)}, done)
    return SimpleNamespace(get_checkpoint_state=lambda: state)


def latest(folder: Path) -> tuple[int, int, float] | None:
    """Return place and value of the checkpoint that a resumed run loads."""
    loaded = AtomicCheckpointer(str(folder)).load_checkpoint()
    if loaded is None:
        return None
    model, trainer = loaded
    assert (model["weight"] == trainer["value"]).all()
    return trainer["epochs_completed"], trainer["batches_in_epoch_completed"], trainer["value"]


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def keeping_all(folder: Path, **options: Any) -> AtomicCheckpointer:
    return AtomicCheckpointer(str(folder), keep_most_recent_by_count=None, **options)


def steps_saved(checkpointer: AtomicCheckpointer, steps: range) -> list[int]:
    save = checkpointer.maybe_save_checkpoint
    return [step for step in steps if save(trainer_at(0, step), 0, step)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two checkpoints."""
    keeping_all(tmp_path).save_checkpoint(trainer_at(0, 5, 1.0))
    keeping_all(tmp_path).save_checkpoint(trainer_at(0, 10, 2.0))
    return tmp_path


@pytest.mark.parametrize("part", ["trainer", "model"])
def test_no_checkpoint_is_written_after_a_loss_that_is_no_number(part: str, folder: Path) -> None:
    """All processes check, before any of them exchanges anything with others."""

    def broken() -> None:
        raise ValueError("The loss is nan")

    trainer, before = trainer_at(0, 15, 3.0), names(folder)
    trainer.model = SimpleNamespace()
    trainer._callbacks = [SimpleNamespace(gather_state=lambda: pytest.fail("it was too early"))]
    (trainer if part == "trainer" else trainer.model).require_finite = broken
    with pytest.raises(ValueError, match="The loss is nan"):
        AtomicCheckpointer(str(folder)).save_checkpoint(trainer)
    assert names(folder) == before and latest(folder) == (0, 10, 2.0)


def test_writes_what_allennlp_writes(folder: Path) -> None:
    assert names(folder) == {f"{k}_state_{p}.th" for k in KINDS for p in ("e0_b5", "e0_b10")}
    assert latest(folder) == (0, 10, 2.0)
    assert Checkpointer(str(folder)).load_checkpoint() is not None  # readable without us


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert AtomicCheckpointer(str(tmp_path)).find_latest_checkpoint() is None
    assert latest(tmp_path) is None


@pytest.mark.parametrize("file", [1, 2])
@pytest.mark.parametrize("moment", ["before", "half-way", "flushed", "renamed"])
def test_a_run_killed_while_writing_has_its_last_whole_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: int, moment: str
) -> None:
    """The run is killed at any moment, in the first or the second file."""
    count = 0
    save, replace = torch.save, module.os.replace

    def kill(at: str) -> None:
        if count == file and moment == at:
            raise Killed

    def killed_save(state: Any, stream: Any) -> None:
        nonlocal count
        count += 1
        kill("before")
        save(state, stream)
        if moment == "half-way" and count == file:
            stream.seek(stream.tell() // 2)
            stream.truncate()
        kill("half-way")

    def killed_replace(source: str, target: str) -> None:
        kill("flushed")
        replace(source, target)
        kill("renamed")

    with monkeypatch.context() as patched:
        patched.setattr(module.torch, "save", killed_save)
        patched.setattr(module.os, "replace", killed_replace)
        with pytest.raises(Killed):
            AtomicCheckpointer(str(folder)).save_checkpoint(trainer_at(1, 0, 3.0))
    whole = file == 2 and moment == "renamed"
    assert latest(folder) == ((1, 0, 3.0) if whole else (0, 10, 2.0))
    # The resumed run writes the same place again, and leaves no partial files.
    keeping_all(folder).save_checkpoint(trainer_at(1, 0, 4.0))
    assert latest(folder) == (1, 0, 4.0)
    assert not [name for name in names(folder) if name.endswith(".partial")]


@pytest.mark.parametrize("missing", KINDS)
def test_a_checkpoint_without_one_of_its_files_does_not_count(folder: Path, missing: str) -> None:
    (folder / f"{missing}_state_e0_b10.th").unlink()
    assert latest(folder) == (0, 5, 1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_partial_files_are_no_checkpoints(folder: Path, kind: str) -> None:
    for state in KINDS:
        suffix = ".partial" if state == kind else ""
        (folder / f"{state}_state_e3_b0.th{suffix}").write_bytes(b"half")
    assert latest(folder) == (0, 10, 2.0)


def test_a_hard_link_keeps_what_it_links_to(folder: Path) -> None:
    """AllenNLP makes `best.th` one; writing the same place again must not change it."""
    best = folder / "best.th"
    best.hardlink_to(folder / "model_state_e0_b10.th")
    AtomicCheckpointer(str(folder)).save_checkpoint(trainer_at(0, 10, 9.0))
    assert latest(folder) == (0, 10, 9.0)
    assert (torch.load(best)["weight"] == 2.0).all()


@pytest.mark.parametrize("count, rank", [(1, 0), (2, 0), (3, 0), (1, 4)])
def test_keeps_as_many_checkpoints_as_asked(tmp_path: Path, count: int, rank: int) -> None:
    """AllenNLP does so in the first process only, which sees the folder of its own node.

    It also removes by a pattern, that of batch 1 being `…_e1_b1*.th`, which fits batch 12.
    """
    checkpointer = AtomicCheckpointer(str(tmp_path), keep_most_recent_by_count=count)
    checkpointer._rank = rank
    places = [(0, 2), (0, 4), (1, 0), (1, 1), (1, 12)]
    for value, place in enumerate(places):
        checkpointer.save_checkpoint(trainer_at(*place, float(value)))
        assert latest(tmp_path) == (*place, float(value))
    kept = {f"{kind}_state_e{e}_b{b}.th" for e, b in places[-count:] for kind in KINDS}
    assert names(tmp_path) == kept


def test_half_a_checkpoint_does_not_count_as_one_to_keep(folder: Path) -> None:
    """If it counted, the last whole checkpoint would be removed."""
    (folder / "training_state_e0_b10.th").unlink()
    (folder / "model_state_e0_b12.th").write_bytes(b"half")
    checkpointer = AtomicCheckpointer(str(folder), keep_most_recent_by_count=2)
    checkpointer.save_checkpoint(trainer_at(0, 8, 5.0))
    assert {(0, 5), (0, 8)} == checkpointer._find_all_checkpoints()
    assert latest(folder) == (0, 8, 5.0)


def test_processes_without_a_state_write_nothing(tmp_path: Path) -> None:
    checkpointer = AtomicCheckpointer(str(tmp_path))
    checkpointer._rank = 1
    checkpointer.save_checkpoint(SimpleNamespace(get_checkpoint_state=lambda: None))  # type: ignore
    assert not names(tmp_path)


def test_saves_at_the_same_steps_as_allennlps_checkpointer(tmp_path: Path) -> None:
    checkpointer = keeping_all(tmp_path, save_every_num_batches=3)
    assert steps_saved(checkpointer, range(1, 9)) == [3, 6]
    assert checkpointer.maybe_save_checkpoint(trainer_at(1, 0), 1, 0)


def test_steps_are_counted_over_epochs_that_are_not_saved(tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_every_num_batches": 5, "save_completed_epochs": False}
    places = [(epoch, step) for epoch in range(6) for step in (1, 2, 0)]  # epochs of two steps
    checkpointer, saved = keeping_all(tmp_path, **options), []
    for place in places:
        if checkpointer.maybe_save_checkpoint(trainer_at(*place), *place):
            saved.append(place)
            checkpointer = keeping_all(tmp_path, **options)  # resumed
            checkpointer.load_checkpoint()
    assert saved == [(2, 1), (4, 2)]


def test_a_resumed_run_saves_when_the_first_one_would_have(folder: Path) -> None:
    checkpointer = AtomicCheckpointer(str(folder), save_every_num_batches=5)
    checkpointer.load_checkpoint()
    assert steps_saved(checkpointer, range(11, 21)) == [15, 20]


def test_weights_that_are_not_finite_push_out_no_checkpoint(tmp_path: Path) -> None:
    checkpointer = AtomicCheckpointer(str(tmp_path))
    checkpointer.save_checkpoint(trainer_at(0, 1))
    message = r"not finite any more \(first in weight\).*e0_b1.*--recover"
    with pytest.raises(ValueError, match=message):
        checkpointer.save_checkpoint(trainer_at(0, 2, math.nan))
    assert checkpointer.find_latest_checkpoint()[0].endswith("e0_b1.th")


# ------------------------------------------------------------------------------------- damage


def flip(file: Path) -> None:
    """Change one bit of a weight, or of a number in the other file."""
    content = bytearray(file.read_bytes())
    training = content.find(b"epochs_completed")
    content[training if training >= 0 else len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:900])


def empty(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, cut, empty])
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_checkpoints_are_passed_over(
    folder: Path, caplog: pytest.LogCaptureFixture, kind: str, damage: Callable[[Path], None]
) -> None:
    damaged = folder / f"{kind}_state_e0_b10.th"
    damage(damaged)
    assert latest(folder) == (0, 5, 1.0)
    (record,) = caplog.records
    what = "its record" if damage is flip else "it is cut off or overwritten"
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"{damaged} is damaged: {what}")
    assert record.message.endswith(f"whole, {folder / 'model_state_e0_b5.th'}.")
    assert damaged.exists()


def test_damaged_checkpoints_only_raise_and_do_not_begin_anew(folder: Path) -> None:
    flip(folder / "model_state_e0_b10.th")
    empty(folder / "training_state_e0_b5.th")
    message = (
        r"No checkpoint in .* is whole.*model_state_e0_b10.th is damaged: its record .*"
        r"training_state_e0_b5.th is damaged: it is cut off.*begin anew with --force"
    )
    with pytest.raises(ConfigurationError, match=message):
        latest(folder)
    assert len(names(folder)) == 4


def test_damaged_checkpoints_do_not_push_out_whole_ones(folder: Path) -> None:
    flip(folder / "model_state_e0_b10.th")
    checkpointer = AtomicCheckpointer(str(folder), keep_most_recent_by_count=2)
    checkpointer.load_checkpoint()
    for step in (6, 7):
        checkpointer.save_checkpoint(trainer_at(0, step, float(step)))
        # By this, AllenNLP finds what it has just written, to make it the best weights.
        assert str(checkpointer.find_latest_checkpoint()).count(f"e0_b{step}.th") == 2
    assert checkpointer._find_all_checkpoints() == {(0, 6), (0, 7)}
    assert (folder / "model_state_e0_b10.th").exists()
    assert latest(folder) == (0, 7, 7.0)
    checkpointer.save_checkpoint(trainer_at(0, 10, 3.0))  # the run has come there
    assert checkpointer._find_all_checkpoints() == {(0, 7), (0, 10)}
    assert latest(folder) == (0, 10, 3.0)


def test_all_processes_load_a_checkpoint_that_is_whole_on_all_nodes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = iter([{(0, 5), (0, 10)}, "model_state_e0_b10.th of node 1 is damaged", None])
    monkeypatch.setattr(module, "of_all_processes", lambda own: [own, next(elsewhere)])
    assert latest(folder) == (0, 5, 1.0)
    assert "of node 1 is damaged. The run goes on from" in caplog.text


@pytest.mark.parametrize(
    "damage, what", [(flip, "damaged: its record"), (Path.unlink, "not there.")]
)
def test_damaged_best_weights_are_warned_of_when_resuming(
    folder: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], what: str
) -> None:
    trainer = trainer_at(1, 0)
    trainer.get_checkpoint_state().trainer_state["best_model_filename"] = "elsewhere/best.th"
    AtomicCheckpointer(str(folder)).save_checkpoint(trainer)
    best = folder / "best.th"
    shutil.copy(folder / "model_state_e1_b0.th", best)
    assert latest(folder) == (1, 0, 0.0) and not caplog.records
    _, state = AtomicCheckpointer(str(folder)).load_checkpoint()
    assert state["best_model_filename"] == str(best), "not in the folder that it came from"
    damage(best)
    assert latest(folder) == (1, 0, 0.0)
    assert f"{best}, the best weights so far, is {what}" in caplog.text


# -------------------------------------------------------------------------------- several nodes


def found_by_others(monkeypatch: pytest.MonkeyPatch, *others: set[tuple[int, int]]) -> None:
    def answers(own: Any) -> list[Any]:
        return [own, *others] if isinstance(own, set) else [own]

    monkeypatch.setattr(module, "of_all_processes", answers)


def test_a_checkpoint_on_one_node_only_is_not_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was killed when only this node had written its second checkpoint."""
    found_by_others(monkeypatch, {(0, 5)})
    assert latest(folder) == (0, 5, 1.0)
    found_by_others(monkeypatch, {(0, 5), (0, 10)}, {(0, 10), (1, 0)})
    assert latest(folder) == (0, 10, 2.0)


def test_nodes_without_a_checkpoint_in_common_raise(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_by_others(monkeypatch, set())
    message = r"no checkpoint that all 2 processes can read; .* holds \[\(0, 5\), \(0, 10\)\].*Copy"
    with pytest.raises(ConfigurationError, match=message):
        latest(folder)
    (tmp_path / "empty").mkdir()
    found_by_others(monkeypatch, {(0, 5)})
    with pytest.raises(ConfigurationError, match="empty holds none"):
        latest(tmp_path / "empty")
    found_by_others(monkeypatch, set(), set())
    assert latest(tmp_path / "empty") is None


def test_the_state_is_gathered_once(tmp_path: Path) -> None:
    """Gathering the state of a sharded model takes time and all processes."""
    trainer, asked = trainer_at(0, 1), []
    ask = trainer.get_checkpoint_state
    trainer.get_checkpoint_state = lambda: asked.append(1) or ask()
    AtomicCheckpointer(str(tmp_path)).save_checkpoint(trainer)
    assert asked == [1]


@pytest.mark.parametrize("kept", [0, -1])
def test_a_run_that_would_keep_no_checkpoint_is_refused(kept: int, tmp_path: Path) -> None:
    """The trainer looks for the last one to copy the best weights from it."""
    with pytest.raises(ConfigurationError, match=f"by_count is {kept}, .* or null for all"):
        AtomicCheckpointer(str(tmp_path), keep_most_recent_by_count=kept)
    AtomicCheckpointer(str(tmp_path), keep_most_recent_by_count=0, keep_most_recent_by_age=60)
