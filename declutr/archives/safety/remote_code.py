"""Keys by which transformers runs code that is not its own."""

from __future__ import annotations

from typing import Any

from declutr.archives.refusal import TRUST, UnsafeArchive
from declutr.archives.safety.plain_json import KeyPath, dotted, entries, nearest_key

_SWITCHES = ("trust_remote_code", "allow_all_kernels", "use_kernels")


def check_no_remote_code(content: Any, file: str) -> None:
    """Look for them anywhere in a configuration.

    # Raises

    `UnsafeArchive` : `auto_map`, which names classes in Python files beside a checkpoint; a switch
        that lets such files run; an attention implementation from the hub.
    """
    for path, value in entries(content):
        reason = _reason(path, value)
        if reason:
            raise UnsafeArchive(f"{file}: '{dotted(path)}' {reason}. {TRUST}")


def _reason(path: KeyPath, value: Any) -> str | None:
    key = nearest_key(path)
    if key == "auto_map" and value:
        return "names Python code that transformers would run"
    # Any other value is true for `if`, the text "false" as well.
    if key in _SWITCHES and value not in (False, None):
        return f"is {value!r}, which lets code from the web run"
    chooses_attention = any("attn_implementation" in str(part) for part in path)
    if chooses_attention and isinstance(value, str) and "/" in value:
        return f"is {value!r}: attention from there is code, loaded from the web"
    return None
