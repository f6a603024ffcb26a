"""`push-to-hf` uploads what AllenNLP pushes, with the hub's present interface."""

import argparse
import importlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from allennlp.commands.push_to_hf import PushToHf

from declutr.bridge import publishing


class Hub:
    """A hub of one repository, with the methods of `HfApi` that a push calls."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "remote"
        self.folder.mkdir()
        self.tokens: list[Any] = []
        self.created: list[tuple[str, bool, bool]] = []
        self.messages: list[str] = []

    def __call__(self, token: Any = None) -> "Hub":
        self.tokens.append(token)
        return self

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> Any:
        self.created.append((repo_id, private, exist_ok))
        if not (self.folder / ".gitattributes").exists():
            (self.folder / ".gitattributes").write_text("*.bin filter=lfs")
        full = repo_id if "/" in repo_id else f"me/{repo_id}"
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{full}")

    def file_exists(self, repo_id: str, name: str) -> bool:
        return (self.folder / name).exists()

    def hf_hub_download(self, repo_id: str, name: str) -> str:
        return str(self.folder / name)

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, commit_message: str, allow_patterns: list[str]
    ) -> None:
        self.messages.append(f"{repo_id}: {commit_message}")
        found = [path for path in folder_path.rglob("*") if path.is_file()]
        names = [str(path.relative_to(folder_path)) for path in found]
        for name in huggingface_hub.utils.filter_repo_objects(names, allow_patterns=allow_patterns):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder_path / name, self.folder / name)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Replace the hub, put a token in place, and go to an empty folder."""
    made = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", made)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a folder such as a training leaves."""
    folder = tmp_path / "run"
    (folder / "vocabulary").mkdir(parents=True)
    (folder / "log" / "train").mkdir(parents=True)
    for name in ("config.json", "best.th", "metrics.json", "vocabulary/tokens.txt", "out.log"):
        (folder / name).write_text(name)
    (folder / "log" / "train" / "events").write_text("events")
    (folder / "training_state_e1_b0.th").write_text("not for others")
    return folder


def push(*arguments: str) -> Any:
    parser = argparse.ArgumentParser()
    PushToHf().add_subparser(parser.add_subparsers())
    parsed = parser.parse_args(["push-to-hf", *arguments])
    return parsed.func(parsed)


def test_a_run_is_pushed(hub: Hub, run: Path) -> None:
    push("-n", "model", "-s", str(run), "-c", "First of all")
    assert hub.created == [("model", False, True)] and hub.tokens[0] == "hf_secret"
    assert hub.messages == ["me/model: First of all"]
    files = {str(p.relative_to(hub.folder)) for p in hub.folder.rglob("*") if p.is_file()}
    assert files == {
        ".gitattributes",
        "README.md",
        "config.json",
        "log/train/events",
        "metrics.json",
        "vocabulary/tokens.txt",
        "weights.th",
    }
    assert (hub.folder / "weights.th").read_text() == "best.th"
    assert (hub.folder / ".gitattributes").read_text().splitlines() == [
        "*.bin filter=lfs",
        "*.th filter=lfs diff=lfs merge=lfs -text",
    ]
    assert (hub.folder / "README.md").read_text().startswith("---\ntags:\n- allennlp\n---")


def test_a_second_push_keeps_what_others_wrote(hub: Hub, run: Path) -> None:
    push("-n", "model", "-s", str(run), "-o", "lab")
    (hub.folder / "README.md").write_text("Trained on all there is.\n")
    (run / "metrics.json").write_text("better")
    push("-n", "model", "-s", str(run), "-o", "lab")
    assert [repo for repo, *_ in hub.created] == ["lab/model", "lab/model"]
    assert (
        (hub.folder / "README.md")
        .read_text()
        .endswith("# TODO: Fill this model card\nTrained on all there is.\n")
    )
    assert (hub.folder / "metrics.json").read_text() == "better"
    assert (hub.folder / ".gitattributes").read_text().count("*.th") == 1


def test_an_archive_is_pushed(hub: Hub, run: Path, tmp_path: Path) -> None:
    (run / "best.th").rename(run / "weights.th")
    shutil.rmtree(run / "log")
    (run / "training_state_e1_b0.th").unlink()
    archive = shutil.make_archive(str(tmp_path / "model"), "gztar", run)
    push("-n", "model", "-a", archive)
    assert (hub.folder / "weights.th").read_text() == "best.th"
    assert (hub.folder / "vocabulary" / "tokens.txt").exists()


def test_errors_say_what_to_do(hub: Hub, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"Can't find path: gone\.tar\.gz"):
        push("-n", "model", "-a", "gone.tar.gz")
    with pytest.raises(ValueError, match="Can't find path: gone"):
        push("-n", "model", "-s", "gone")
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(ValueError, match=r"no token of the Hugging Face Hub.*`hf auth login`"):
        push("-n", "model", "-s", str(run))
    assert hub.created == []


def test_a_folder_with_other_files_is_left_alone(hub: Hub, run: Path) -> None:
    Path("hub/model/vocabulary").mkdir(parents=True)
    Path("hub/model/vocabulary/mine.txt").write_text("mine")
    with pytest.raises(OSError, match=r"'hub/model' is not empty.*--local-repo-path"):
        push("-n", "model", "-s", str(run))
    assert Path("hub/model/vocabulary/mine.txt").exists() and hub.messages == []


@pytest.mark.parametrize("lost", [".gitattributes", "README.md"])
@pytest.mark.parametrize("pushed", [False, True])
def test_a_push_can_be_repeated_after_a_failed_download(
    hub: Hub, run: Path, monkeypatch: pytest.MonkeyPatch, lost: str, pushed: bool
) -> None:
    (hub.folder / "README.md").write_text("Trained on all there is.\n")
    if pushed:
        push("-n", "model", "-s", str(run))

    def download(repo_id: str, name: str) -> str:
        if name == lost:
            raise ConnectionError(name)
        return str(hub.folder / name)

    with monkeypatch.context() as patched:
        patched.setattr(hub, "hf_hub_download", download)
        with pytest.raises(ConnectionError, match=lost):
            push("-n", "model", "-s", str(run))
    push("-n", "model", "-s", str(run))
    assert len(hub.messages) == 1 + pushed


def test_the_switch_is_needed(bare: Any) -> None:
    name = "allennlp.common.push_to_hf"
    module = importlib.import_module(name)
    assert "organization" not in str(
        publishing.inspect.signature(huggingface_hub.HfApi.create_repo)
    )
    assert module.HfApi is publishing.HfApi
    with publishing.hub_names():
        plain = bare(name)
    assert publishing.hub_uploads(plain) and plain.HfFolder is publishing.HfFolder
    old = SimpleNamespace(create_repo=lambda self, name, organization: None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(huggingface_hub, "HfApi", old)
        with publishing.hub_names():
            assert not publishing.hub_uploads(bare(name))
