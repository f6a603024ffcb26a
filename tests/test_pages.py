"""The pages of the repository: their form, their links, and the files that they name."""

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    *[ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"],
    *[*DOCS, *sorted((ROOT / "training_config").rglob("*.md"))],
    *sorted((ROOT / "examples").rglob("*.md")),
]
NOT_OURS = {"my_model.py", "model.py"}
"""A user's file, and a file of release 1.6 of which docs/GPU.md tells."""
HISTORY = {"CHANGELOG.md"}
"""Pages that tell of files which may be gone."""
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
every_page_of_docs = pytest.mark.parametrize("page", DOCS, ids=name_of)


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and Python-Markdown name them."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        number = sum(known == slug or known.startswith(f"{slug}-") for known in found)
        found.add(slug if slug not in found else f"{slug}-{number}")
    return found


@every_page
def test_named_files_exist(page: Path) -> None:
    if page.name in HISTORY:
        return
    known = [
        path.relative_to(ROOT).as_posix()
        for folder in ("declutr", "tests", "benchmarks", "scripts", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    known += [path.name for path in ROOT.glob("*.py")]
    text = page.read_text(encoding="utf-8")
    new = re.findall(r"New file `([^`]+)`", text)  # in walks through adding something
    named = set(re.findall(r"`([\w/]+\.py)`", text)) - NOT_OURS - set(new)
    missing = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in known)}
    assert not missing


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    """Links to files, and to headings of this and other pages."""
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"\w+:", link):
            assert re.match(r"https?://[\w.-]+\.\w+(/|$)", link), link
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@every_page_of_docs
def test_a_page_begins_with_its_reader_its_question_and_an_example(page: Path) -> None:
    title, blank, question, space, *rest = page.read_text(encoding="utf-8").split("\n")
    assert title.startswith("# ") and not blank and not space
    assert re.fullmatch(r"\*For those who .+: .+\?\*", question), question
    beginning = "\n".join(rest[:24])
    assert re.search(r"^(    \S|```|\|)", beginning, re.MULTILINE), "no example, and no table"


def test_the_readme_has_at_most_1200_words() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1200


@pytest.mark.parametrize("index", ["README.md", "docs/index.md"])
def test_an_index_links_every_page(index: str) -> None:
    file = ROOT / index
    links = LINK.findall(file.read_text(encoding="utf-8"))
    here = [link.partition("#")[0] for link in links if "://" not in link]
    linked = {(file.parent / link).resolve() for link in here} | {file}
    assert {*DOCS} - linked <= {ROOT / "docs" / "index.md"}


def test_the_extras_are_those_of_the_package() -> None:
    page = (ROOT / "docs" / "INSTALL.md").read_text(encoding="utf-8")
    table = page.partition('| `pip install "declutr[…]"` |')[2].partition("\n\n")[0]
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    extras = re.findall(r'^ {4,8}"([\w-]+)": (?:\[|TEST|ONNX|SEARCH)', setup, re.MULTILINE)
    assert set(re.findall(r"`([\w-]+)`(?=,| \|)", table)) >= set(extras) > {"test", "docs"}


def test_what_depends_on_the_system_is_on_the_page_of_platforms() -> None:
    asks = re.compile(
        r"sys\.platform|os\.name\b|platform\.system|sched_getaffinity|[\"/]proc/|prctl|mallopt|"
        r"import (fcntl|msvcrt|resource)|\"fork\"|os\.geteuid|O_CLOEXEC|\bpread|os\.sysconf|"
        r"SIGKILL"
    )
    files = (ROOT / "declutr").rglob("*.py")
    found = {name_of(file) for file in files if asks.search(file.read_text(encoding="utf-8"))}
    assert found <= {
        "declutr/data/data_loader.py",  # how its workers are started
        "declutr/environment/machine.py",  # NVIDIA's driver
        "declutr/runs/check/memory.py",  # the memory of the machine
        "declutr/system/cache_folder.py",  # locks on what is in use
        "declutr/system/files.py",  # the entries of folders, reading in threads
        "declutr/system/host_memory.py",  # glibc
        "declutr/system/processors.py",  # affinity, quotas, the model
        "declutr/system/worker_processes.py",  # forks
    }
