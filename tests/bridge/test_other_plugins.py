"""Pipelines of others are as without this package, and those of all work beside each other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import run_config
from tests.plugins_of_others import NAMES, pipeline, plugin

pytestmark = pytest.mark.slow

OURS = Path(__file__).parents[1] / "fixtures" / "release_1_5_0" / "model" / "model.tar.gz"

# Runs commands in one process, as each would run in its own. AllenNLP imports default plugins, such
# as `allennlp_server`, before those of files and packages.
DRIVER = '''
import contextlib, io, json, sys
import declutr.__main__
from allennlp.commands import main
from allennlp.commands.subcommand import Subcommand
from allennlp.common.plugins import import_plugins

def ran(*arguments, program="allennlp"):
    """Return what a command prints."""
    sys.argv = [program, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        declutr.__main__.main() if program == "declutr" else main(prog=program)
    return printed.getvalue()

included = json.loads(sys.argv[1])
'''

COMMANDS = """
import_plugins()
from allennlp.common.util import import_module_and_submodules
[import_module_and_submodules(name) for name in included[1:]]
listed = ran("--help").splitlines()
own = listed.index("  Sentence embeddings (declutr):")
for name in NAMES:
    helped = [number for number, line in enumerate(listed) if line.split()[:1] == [name]]
    prefixed = [n for n, line in enumerate(listed) if line.split()[:1] == ["declutr-" + name]]
    assert len(helped) == len(prefixed) == 1 and helped[0] < own < prefixed[0], (name, listed)
    assert ran(name) == name + " of others\\n"
    assert ran("declutr-" + name, "--help").startswith("usage: allennlp declutr-" + name)
    assert ran(name, "--help", program="declutr").startswith(f"usage: declutr {name} ")
for name in set(Subcommand.list_available()) - {*NAMES}:
    assert ran(name, "--help").startswith("usage: allennlp"), name
"""

PIPELINES = """
from allennlp.models import load_archive
from allennlp.predictors import Predictor
from declutr import Encoder

def rooms(archive):
    read, vocab = archive.dataset_reader, archive.model.vocab
    parts = (archive.model, read, *read._token_indexers.values(), *archive.model.children())
    predictor = Predictor.from_archive(archive)
    return {type(one).__module__.partition(".")[0] for one in (predictor, *parts)}

ran("train", "theirs.json", "-s", "theirs", *include)
assert rooms(load_archive("theirs/model.tar.gz")) <= {"allennlp_server", "after", "torch"}
ran("train", "ours.json", "-s", "ours", program="declutr")
config = json.load(open("ours/config.json"))
assert config["dataset_reader"]["type"] == config["model"]["type"] == "declutr-declutr"
for place in ("ours/model.tar.gz", OURS):
    found = rooms(load_archive(place))
    assert "declutr" in found and not {"allennlp_server", "after"} & found, (place, found)
    assert Encoder(place, device="cpu")(["ka lo mi"]).any()
ran("train", "ours.json", "-s", "ours", "--recover", program="declutr")
"""


def halves(first: int, folder: Path, listed: str | None = ".allennlp_plugins") -> dict[str, str]:
    """Write a plugin that is loaded before this package, and one after it; return the variables."""
    (folder / "allennlp_server.py").write_text(plugin(NAMES[first::2]))
    (folder / "after.py").write_text(plugin(NAMES[1 - first :: 2]))
    if listed is not None:
        (folder / listed).parent.mkdir(exist_ok=True)
        (folder / listed).write_text("after\n")
    (folder / "theirs.json").write_text(json.dumps(pipeline(folder)))
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "HOME": str(folder)}


def done(folder: Path, environment: dict[str, str], code: str, *included: str) -> None:
    commands = [name for base, name in NAMES if base.endswith(":Subcommand")]
    begin = f"{DRIVER}NAMES, OURS, include = {commands!r}, {str(OURS)!r}, included\n"
    result = subprocess.run(
        [sys.executable, "-c", begin + code, json.dumps(included)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]


def test_all_names_are_taken_and_everything_works(
    tmp_path: Path, checkpoint: Path, corpus_file: Path
) -> None:
    environment = halves(0, tmp_path)
    trainer = {**run_config(checkpoint, corpus_file)["trainer"], "type": "declutr"}
    trainer |= {"callbacks": ["run_record"], "checkpointer": {"type": "atomic"}}
    config = run_config(checkpoint, corpus_file, trainer=trainer)
    (tmp_path / "ours.json").write_text(json.dumps(config))
    done(tmp_path, environment, COMMANDS + PIPELINES)


@pytest.mark.long
@pytest.mark.parametrize("listed", [".allennlp_plugins", ".allennlp/plugins", None])
def test_in_any_order_and_by_any_way_of_loading(listed: str | None, tmp_path: Path) -> None:
    environment = halves(1, tmp_path, listed)
    done(tmp_path, environment, COMMANDS, *([] if listed else ["--include-package", "after"]))
