"""What a result depends on: the encoder, the protocol, the data and the release."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from declutr.evaluation.task import Protocol, Task

Key = dict[str, str]
"""What a result depends on, in words: `encoder`, `protocol`, `data`, `declutr`."""


def key_of(protocol: Protocol, encoder: str, version: str, data: str = "") -> Key:
    """What a result depends on.

    # Parameters

    encoder : its fingerprint.
    version : of this package.
    data : see `data_digest`; none where the data cannot be read.
    """
    return {
        "encoder": encoder,
        "protocol": settings(protocol),
        "data": data,
        "declutr": version,
    }


def settings(protocol: Protocol) -> str:
    """A protocol in words, for a key: all but where classifiers are trained."""
    fields = dataclasses.asdict(protocol)
    del fields["device"]
    return json.dumps(fields)


def data_digest(task: Task) -> str:
    """A digest of all that a task has read: texts, labels, gold scores, and its settings.

    Paths and the protocol are left out, so that data may be moved, and are compared on their own.
    Attributes that scoring changes do not count if the task names them and their first values in a
    dictionary `before_scoring`.
    """
    digest = hashlib.sha256()
    _feed(digest, task.sentences(), set())
    before: Mapping[str, Any] = getattr(task, "before_scoring", {})
    _feed(digest, {**vars(task), **before} if before else vars(task), set())
    return digest.hexdigest()[:32]


def _feed(digest: Any, value: Any, inside: set[int]) -> None:
    if isinstance(value, (PurePath, Protocol, Iterator)) or callable(value):
        return
    if id(value) in inside:  # it holds itself
        return
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.update(f"array {value.dtype} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
        return
    if value is None or isinstance(value, (str, bytes, bool, int, float, np.generic)):
        text = repr(value).encode("utf-8", "backslashreplace")
        digest.update(b"%s %d " % (type(value).__name__.encode(), len(text)) + text)
        return
    inside = inside | {id(value)}
    digest.update(f"{type(value).__name__}(".encode())
    if isinstance(value, Mapping):
        elements = [part for name in sorted(value, key=repr) for part in (name, value[name])]
    elif isinstance(value, (set, frozenset)):
        elements = sorted(value, key=repr)
    elif isinstance(value, Iterable):  # lists, tuples, arrays of objects
        elements = list(value)
    elif dataclasses.is_dataclass(value):
        elements = [{f.name: getattr(value, f.name) for f in dataclasses.fields(value)}]
    else:
        elements = [getattr(value, "__dict__", None)]
    for element in elements:
        _feed(digest, element, inside)
    digest.update(b")")


def differing(ours: Key, theirs: Key) -> list[str]:
    """What two keys differ in, in words."""
    found = []
    for name in ("encoder", "data", "declutr"):
        if ours.get(name) != theirs.get(name):
            found.append(f"{name} {theirs.get(name)} there, {ours.get(name)} now")
    before, now = (json.loads(key.get("protocol", "{}")) for key in (theirs, ours))
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            found.append(f"protocol: {name} {before.get(name)} there, {now.get(name)} now")
    return found
