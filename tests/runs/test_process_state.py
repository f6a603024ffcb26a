"""A training finds a process as new, and leaves it as it was."""

import io
import logging
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import allennlp.common.logging as allennlp_logging
import allennlp.common.tqdm as allennlp_tqdm
import numpy as np
import pytest
import torch
import tqdm.notebook
from allennlp.common import cached_transformers

from declutr.runs.process_state import (
    as_in_a_new_process,
    logging_to_file,
    random_numbers_restored,
)
from declutr.system.kernel_choices import CHOICES
from declutr.training.stopping import stop_asked, stops_after_a_step


def test_random_numbers_go_on_as_if_nothing_had_been_drawn() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = drawn()
    random.setstate(states[0]), np.random.set_state(states[1]), torch.set_rng_state(states[2])
    with pytest.raises(ValueError, match="stop"), random_numbers_restored():
        torch.manual_seed(0), random.seed(0), np.random.seed(0), drawn()
        raise ValueError("stop")
    assert drawn() == expected


def test_caches_and_settings_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = {"kept": torch.nn.Linear(1, 1)}
    monkeypatch.setattr(cached_transformers, "_model_cache", cache)
    threads, kernels = torch.get_num_threads(), CHOICES.taken()
    CHOICES.adopt({"a question": "onednn"})
    with torch.no_grad(), as_in_a_new_process():
        assert torch.is_grad_enabled()
        assert cached_transformers._model_cache == {} and CHOICES.taken() == {}
        CHOICES.adopt({"a question": "plain"})
        torch.set_num_threads(threads + 1)
    assert CHOICES.taken() == {**kernels, "a question": "onednn"}
    assert cached_transformers._model_cache is cache and torch.get_num_threads() == threads
    CHOICES.forget()
    CHOICES.adopt(kernels)


@contextmanager
def of_a_new_process() -> Iterator[logging.Logger]:
    """The root logger without handlers, also those of pytest, which are put back afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers, root.level = [], logging.WARNING
    logging.getLogger("a.verbose").setLevel(logging.INFO)
    yield root
    root.handlers, root.level = handlers, level
    logging.getLogger("a.verbose").setLevel(logging.NOTSET)


def test_messages_go_to_the_file_and_warnings_to_the_caller(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    prepare = allennlp_logging.prepare_global_logging
    with of_a_new_process() as root:
        with logging_to_file():
            allennlp_logging.prepare_global_logging(tmp_path)
            logging.getLogger("a.step").info("not told")
            logging.getLogger("a.step").warning("told")
            logging.getLogger("a.verbose").info("asked for")
            allennlp_tqdm.logger.info("a bar")
        logging.getLogger("a.step").info("after")
        assert root.handlers == [] and root.level == logging.WARNING
    out, err = capsys.readouterr()
    assert out == "" and err == "told\n"  # as without handlers: warnings alone
    lines = (tmp_path / "out.log").read_text().splitlines()
    assert [line.rsplit(" - ")[-1] for line in lines] == ["not told", "told", "asked for", "a bar"]
    assert allennlp_logging.prepare_global_logging is prepare


def test_handlers_of_the_caller_stay(tmp_path: Path) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    with of_a_new_process() as root:
        root.addHandler(handler)
        with logging_to_file():
            allennlp_logging.prepare_global_logging(tmp_path)
            logging.getLogger("a.step").info("not told")
            logging.getLogger("a.verbose").info("asked for")
        assert root.handlers == [handler] and handler.filters == []
    assert stream.getvalue() == "asked for\n"


def test_notebooks_without_widgets_get_plain_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """tqdm's own bar would raise `ImportError` there."""
    monkeypatch.setattr(allennlp_tqdm, "_tqdm", tqdm.notebook.tqdm_notebook)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with logging_to_file():
        assert allennlp_tqdm._tqdm is tqdm.tqdm
    assert allennlp_tqdm._tqdm is tqdm.notebook.tqdm_notebook


def test_the_second_interruption_is_at_once(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stops_after_a_step():
        assert not stop_asked()
        signal.raise_signal(signal.SIGINT)
        assert stop_asked() and "Ctrl-C again stops at once" in caplog.text
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before and not stop_asked()


def test_other_threads_are_not_told_of_signals() -> None:
    found: list[object] = []

    def run() -> None:
        with stops_after_a_step():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGINT)]
