"""Tests of the output and exit status of `declutr export`."""

import json
import sys
from pathlib import Path

import pytest
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError

import declutr.commands.export  # noqa: F401

pytestmark = pytest.mark.slow


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments: object) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["declutr", "export", *map(str, arguments)])
        capsys.readouterr()
        main()
        return capsys.readouterr()

    return run


def test_an_exported_folder_is_reported(run, trained: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("kalo mitu\n\nresa\n")
    out = tmp_path / "out"
    printed, told = run(trained, out, "--no-onnx", "--normalize", "--texts", texts)
    assert "| declutr.Encoder" in printed and f"Written: {out}" in printed
    assert "Comparing ..." in told
    modules = json.loads((out / "modules.json").read_text())
    assert modules[-1]["type"] == "sentence_transformers.models.Normalize"


def test_a_difference_ends_with_1_and_the_table(run, trained: Path, tmp_path, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        run(trained, tmp_path / "out", "--no-onnx", "--tolerance", "1e-12")
    assert caught.value.code == 1
    printed, told = capsys.readouterr()
    assert "too much" in printed and "nothing was exported" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--texts", "nowhere.txt"], "nowhere.txt"),
        (["--tolerance", "-1"], "tolerance above 0"),
        (["--scores", "nowhere"], "No results.json"),
    ],
)
def test_errors_end_with_a_message(run, trained: Path, tmp_path: Path, arguments, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        run(trained, tmp_path / "out", "--no-onnx", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_onnx_and_no_onnx_exclude_each_other(run, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        run("a", "b", "--onnx", "--no-onnx")
    assert caught.value.code == 2
    assert "not allowed with" in capsys.readouterr().err
