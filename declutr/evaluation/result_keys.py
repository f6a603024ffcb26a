"""Keys of stored results: the encoder, protocol, data and release that a result depends on."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np

from declutr.evaluation.task import Protocol, Task

Key = dict[str, str]
"""A mapping with the entries `encoder`, `protocol`, `data` and `declutr`, all of them text."""


def key_of(protocol: Protocol, encoder: str, version: str, data: str = "") -> Key:
    """Return the key of a result.

    # Parameters

    protocol : the settings that the result was computed with.
    encoder : the fingerprint of the encoder.
    version : the version of `declutr`.
    data : the digest of the data set, see `data_digest`; empty if the data cannot be read.
    """
    return {"encoder": encoder, "protocol": settings(protocol), "data": data, "declutr": version}


def settings(protocol: Protocol) -> str:
    """Return a protocol as JSON text for a key, without the device that trains classifiers."""
    fields = dataclasses.asdict(protocol)
    del fields["device"]
    return json.dumps(fields)


def data_digest(task: Task) -> str:
    """Return a digest of everything that a task has read: texts, labels, gold scores, settings.

    Paths are left out, so that a data folder may be moved. The protocol is left out because a key
    has it in an entry of its own. A task whose attributes change when it is scored names them, with
    their initial values, in a dictionary `before_scoring`; the digest then uses these initial
    values. Fields of data classes with `metadata={"derived": True}` follow from the others and are
    left out.
    """
    digest = hashlib.sha256()
    _feed(digest, task.sentences(), set())
    before: Mapping[str, Any] = getattr(task, "before_scoring", {})
    _feed(digest, {**vars(task), **before} if before else vars(task), set())
    return digest.hexdigest()[:32]


def _feed(digest: Any, value: Any, inside: set[int]) -> None:
    seen = id(value) in inside  # a cycle: the value contains itself
    if seen or isinstance(value, (PurePath, Protocol, Iterator)) or callable(value):
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
        stated = [f.name for f in dataclasses.fields(value) if not f.metadata.get("derived")]
        elements = [{name: getattr(value, name) for name in stated}]
    else:
        elements = [getattr(value, "__dict__", None)]
    for element in elements:
        _feed(digest, element, inside)
    digest.update(b")")


def differing(ours: Key, theirs: Key) -> list[str]:
    """Describe in words every entry in which two keys differ.

    # Parameters

    ours : the key that a result would have now.
    theirs : the key that is stored with the result.

    # Returns

    One phrase for each difference; empty if the keys agree.
    """
    before, now = (json.loads(key.get("protocol", "{}")) for key in (theirs, ours))
    compared = [(name, theirs.get(name), ours.get(name)) for name in ("encoder", "data", "declutr")]
    compared += [
        (f"protocol: {name}", before.get(name), now.get(name))
        for name in dict.fromkeys([*before, *now])
    ]
    return [f"{name} {one} there, {other} now" for name, one, other in compared if one != other]
