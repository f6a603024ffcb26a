"""`declutr recipes` lists, shows and copies; it needs neither AllenNLP nor torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from declutr.commands.errors import TRACEBACK
from declutr.commands.recipes import main
from declutr.recipes import recipe_path


def test_list_is_the_default(capsys: pytest.CaptureFixture) -> None:
    assert main([]) == main(["list"]) == 0
    first, second = capsys.readouterr().out.split("I have sentences, one a line. I want")[:2]
    assert "declutr_small " in first and "sentences/simcse " in second
    main(["list", "--json"])
    assert len(json.loads(capsys.readouterr().out)) > 60


def test_show_and_path(capsys: pytest.CaptureFixture) -> None:
    main(["show", "simcse"])
    main(["path", "simcse"])
    text, path = recipe_path("simcse").read_text(), recipe_path("simcse")
    assert capsys.readouterr().out == f"{text}{path}\n"


def test_copy_says_where(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    main(["copy", "scd", "-o", str(tmp_path)])
    out = capsys.readouterr().out
    assert out.startswith(f"Copied {tmp_path}/sentences/scd.jsonnet, which imports {tmp_path}/")


def test_errors_are_one_line(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TRACEBACK, "0")
    with pytest.raises(SystemExit) as stopped:
        main(["show", "declutr_smal"])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("declutr recipes show: There is no recipe 'declutr_smal'. Expected")
    assert error.endswith("the nearest: declutr_small, declutr_base, declutr.\n")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_reader_that_has_had_enough_is_no_error() -> None:
    shown = f"{sys.executable} -m declutr recipes | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == ["0"] and done.stderr == ""


@pytest.mark.slow
def test_without_allennlp_and_torch() -> None:
    code = (
        "import sys; sys.modules['allennlp'] = sys.modules['torch'] = None\n"
        "from declutr.__main__ import main\n"
        "sys.argv = ['declutr', 'recipes', 'path', 'moco']\n"
        "main()"
    )
    path = subprocess.check_output([sys.executable, "-c", code], text=True).strip()
    assert Path(path) == recipe_path("moco")
