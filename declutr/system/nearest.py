"""The name that was probably meant, among those that are known."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

_CLOSE = 0.6  # the similarity by `difflib` from which on a name is worth naming
_MOST_LISTED = 12


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, or `None` if none is similar.

    Upper and lower case, `-` and `_` count as equal.
    """
    plain = {_plain(one): one for one in known}
    close = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=_CLOSE)
    return plain[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"`, or an empty text if no known name is similar to `name`."""
    found = nearest(name, known)
    return f" Did you mean '{found}'?" if found else ""


def of_wrong_keys(wrong: Iterable[str], known: Collection[str]) -> str:
    """Return a text on keys that a class does not take: the nearest known ones, and all."""
    near = {name: nearest(name, known) for name in wrong}
    meant = [f"Did you mean '{one}' for '{name}'? " for name, one in near.items() if one]
    return "".join(meant) + (f"It takes {listed(known)}." if known else "It takes no keys.")


def listed(names: Iterable[str]) -> str:
    """Return names as a text with commas; only the first twelve of many."""
    names = list(names)
    some = ", ".join(names[:_MOST_LISTED])
    return f"{some}, ... ({len(names)} in all)" if len(names) > _MOST_LISTED else some


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
