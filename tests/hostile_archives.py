"""Makers of unsafe archives. Each archive is safe except for one thing."""

import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch


class Payload:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = str(marker)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self._marker,)


def regular(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    """Return the header and content of a regular file."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    """Return the header of a member without content: a folder, a link, a device or the like."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def tar_of(file: Path, members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """Write an archive with the given members, and return its path."""
    with tarfile.open(file, "w:gz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return file


def declared(file: Path, size: int, content: bytes = b"x" * 512) -> Path:
    """Write an archive with one member whose declared size is not that of its content."""
    member = tarfile.TarInfo("weights.th")
    member.size = size
    with gzip.open(file, "wb") as stream:
        stream.write(member.tobuf(tarfile.GNU_FORMAT) + content)
    return file


def long_header(file: Path, size: int) -> Path:
    """Write an archive whose first header declares a member name of `size` bytes."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, size
    with gzip.open(file, "wb") as stream:
        stream.write(member.tobuf(tarfile.GNU_FORMAT) + b"a" * 1024)
    return file


def nested_headers(file: Path, depth: int) -> Path:
    """Write an archive of `depth` headers, each of which extends the next."""
    member = tarfile.TarInfo("././@LongLink")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 2
    one = member.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0")
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(one * depth)
    return file


def sparse(file: Path, size: int) -> Path:
    """Write an archive with one sparse file (PAX 1.0) of a declared size."""
    member = tarfile.TarInfo("weights.th")
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "weights.th",
        "GNU.sparse.realsize": str(size),
    }
    content = b"0\n".ljust(512, b"\0")
    member.size = len(content)
    with tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(content))
    return file


def changed(honest: Path, folder: Path, change: Callable[[Path], Any]) -> Path:
    """Extract the archive `honest` into `folder`, apply a change, and return the folder."""
    folder.mkdir(exist_ok=True)
    with tarfile.open(honest) as tar:
        tar.extractall(folder, filter="data")
    change(folder)
    return folder


def packed(folder: Path, file: Path) -> Path:
    """Write the content of a folder as an archive, as AllenNLP does, and return its path."""
    with tarfile.open(file, "w:gz", compresslevel=1) as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=path.name)
    return file


def with_config(*keys: str | int, value: Any) -> Callable[[Path], None]:
    """Return a change that sets a value in `config.json`; missing dictionaries are added."""

    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        inner = config
        for key in keys[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
        inner[keys[-1]] = value
        (folder / "config.json").write_text(json.dumps(config))

    return change


def with_json(name: str, **entries: Any) -> Callable[[Path], None]:
    """Return a change that adds entries to a JSON file of the archive."""

    def change(folder: Path) -> None:
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))

    return change


def with_text(name: str, text: str) -> Callable[[Path], None]:
    """Return a change that writes a text file."""
    return lambda folder: (folder / name).write_text(text)


def with_pickle(name: str, marker: Path, protocol: int = 2) -> Callable[[Path], None]:
    """Return a change that writes a `Payload` as a plain pickle."""
    return lambda folder: (folder / name).write_bytes(pickle.dumps(Payload(marker), protocol))


def with_torch_pickle(name: str, marker: Path, zipped: bool = True) -> Callable[[Path], None]:
    """Return a change that writes a `Payload` beside tensors with `torch.save`."""

    def change(folder: Path) -> None:
        state = {"weight": torch.zeros(2), "more": Payload(marker)}
        torch.save(state, folder / name, _use_new_zipfile_serialization=zipped)

    return change


def without(name: str) -> Callable[[Path], None]:
    """Return a change that deletes a file or folder."""

    def change(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def with_remote_code(marker: Path) -> Callable[[Path], None]:
    """Return a change that gives a RoBERTa folder a class of its own, in a Python file.

    The file creates the folder `marker` when it runs. transformers copies it to `HF_MODULES_CACHE`
    first, which a test should set to a temporary folder.
    """
    code = f"""
import os
from transformers import RobertaConfig, RobertaModel
os.makedirs({str(marker)!r}, exist_ok=True)
class Config(RobertaConfig):
    model_type = "theirs"
class Model(RobertaModel):
    config_class = Config
"""
    auto_map = {"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"}

    def change(folder: Path) -> None:
        (folder / "theirs.py").write_text(code)
        with_json("config.json", model_type="theirs", auto_map=auto_map)(folder)

    return change
