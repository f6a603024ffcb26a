"""Caches, free space and the way to the hub are told; without a network nothing waits for long."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from declutr.environment import storage
from declutr.environment.findings import ERROR, OK, WARNING
from declutr.environment.probe import Answer
from declutr.environment.storage import disk, hub_access

PLENTY = 50 << 30


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The settings of a hub whose cache holds a file of a megabyte."""
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path / "ours"))
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=PLENTY))
    (tmp_path / "hub" / "models--x").mkdir(parents=True)
    (tmp_path / "hub" / "models--x" / "weights").write_bytes(bytes(1 << 20))
    return {"folder": str(tmp_path / "hub"), "endpoint": "http://127.0.0.1:1", "offline": False}


def test_caches_are_told_with_size_and_room(hub: dict[str, Any]) -> None:
    ours, theirs, *others = disk(Answer(hub))
    assert ours.level == OK and "ours, not there yet, 50.0 GiB free" in ours.said
    assert theirs.details is not None and theirs.details["bytes"] >= 1 << 20
    assert theirs.details["writable"] and theirs.level == OK
    assert [finding.name for finding in others] == ["temporary files", "here"]
    assert len(list(disk(Answer(error="ImportError")))) == 3


@pytest.mark.parametrize("free, level", [(1 << 30, WARNING), (1 << 20, ERROR)])
def test_a_full_disk_is_told(hub: dict[str, Any], monkeypatch: Any, free: int, level: str) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=free))
    for finding in disk(Answer(hub)):
        assert finding.level == level and "declutr cache prune" in str(finding.cure)


def test_a_cache_that_cannot_be_written_is_told(hub: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("os.access", lambda place, mode: False)
    ours, theirs, *_ = disk(Answer(hub))
    assert ours.level == theirs.level == WARNING
    assert "cannot be written: nothing is kept" in ours.said and "DECLUTR_CACHE" in str(ours.cure)
    assert "HF_HOME" in str(theirs.cure)


def test_the_size_of_a_huge_cache_is_a_lower_bound(hub: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(storage, "_WALK", -1)
    _, theirs, *_ = disk(Answer(hub))
    assert "more than 0.00 GiB" in theirs.said


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        status = 200

        def do_GET(self) -> None:
            self.send_response(type(self).status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status, level", [(200, OK), (401, OK), (503, WARNING)])
def test_the_hub_is_asked(hub: dict, server: Any, status: int, level: str, monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server.RequestHandlerClass.status = status
    hub["endpoint"] = f"http://127.0.0.1:{server.server_port}"
    (finding,) = hub_access(Answer(hub), asks=True)
    assert finding.level == level
    assert ("answers within" if level == OK else "does not answer: status 503") in finding.said


def test_a_hub_that_cannot_be_reached_is_a_warning(hub: dict, monkeypatch: Any) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (finding,) = hub_access(Answer(hub), asks=True)
    assert finding.level == WARNING and "refused" in finding.said
    assert "HF_HUB_OFFLINE=1" in str(finding.cure)


def test_a_hub_that_says_nothing_is_given_up(hub: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(storage, "_PATIENCE", -0.9)
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: threading.Event().wait(3))
    (finding,) = hub_access(Answer(hub), asks=True)
    assert finding.level == WARNING and "nothing within" in finding.said


def test_nothing_is_asked_against_the_will_of_the_user(hub: dict, monkeypatch: Any) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(storage, "_problem_with", asked)
    (finding,) = hub_access(Answer(hub), asks=False)
    assert finding.level == OK and "--offline" in finding.said
    (finding,) = hub_access(Answer({**hub, "offline": True}), asks=True)
    assert finding.level == OK and "HF_HUB_OFFLINE" in finding.said
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (finding,) = hub_access(Answer(error="huggingface_hub is broken"), asks=True)
    assert finding.level == OK
