"""The command `declutr cache`, which lists and prunes what is kept in the cache folder."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path

from declutr.commands.errors import set_command
from declutr.environment.cache_entries import (
    KINDS,
    Entry,
    entries,
    remove,
    remove_free_locks,
)
from declutr.system.cache_folder import CACHE_VARIABLE, default_cache_dir

_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_ABOUT = f"""\
Tokenised corpora, parsed word vectors, digests of files and measured times are kept in
${CACHE_VARIABLE} or ~/.cache/declutr. All of it is made again when it is needed. What a running
process uses is never removed, nor what another program put there.

kinds:
""" + "\n".join(f"  {name:<14}{about}" for name, about in KINDS.items())


class CacheError(ValueError):
    """Raised if `declutr cache` cannot do what its arguments say."""


def main(argv: list[str]) -> None:
    """Run `declutr cache` with the arguments after its name."""
    args = _parser().parse_args(argv)
    args.func(args)


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="declutr cache",
        description="List and prune what is kept on disk.",
        epilog=_ABOUT,
        formatter_class=raw,
    )
    actions = parser.add_subparsers(title="actions", metavar="list | prune", required=True)
    listing = actions.add_parser(
        "list", help="list all entries", epilog=_ABOUT, formatter_class=raw
    )
    listing.add_argument("--json", action="store_true", help="as JSON, with whole paths")
    set_command(listing, _list)
    pruning = actions.add_parser(
        "prune",
        help="remove entries",
        description="Remove the entries for which all of the given conditions hold.",
        epilog=_ABOUT,
        formatter_class=raw,
    )
    add = pruning.add_argument
    add("--older-than", type=_age, metavar="AGE", help="not used for so long: 12h, 30d, 8w")
    add("--larger-than", type=_size, metavar="SIZE", help="larger than this: 500M, 2G")
    add("--kind", action="append", choices=sorted(KINDS), help="of this kind; may be repeated")
    add("--all", action="store_true", help="every entry")
    add("--dry-run", action="store_true", help="say what would be removed, and remove nothing")
    set_command(pruning, _prune)
    return parser


def _list(args: argparse.Namespace) -> None:
    cache = default_cache_dir()
    found = entries(cache)
    if args.json:
        listed = [{**entry._asdict(), "path": str(entry.path)} for entry in found]
        print(json.dumps({"folder": str(cache), "entries": listed}, indent=2))
        return
    total = in_bytes(sum(entry.size for entry in found))
    count = sum(entry.kind is not None for entry in found)
    print(f"{cache}: {count} {'entry' if count == 1 else 'entries'}, {total}")
    for entry in found:
        print(_line(entry, cache))


def _prune(args: argparse.Namespace) -> None:
    if args.all == any((args.older_than, args.larger_than, args.kind)):
        raise CacheError(
            "Expected either --all, or conditions: --older-than, --larger-than, --kind. "
            "`declutr cache list` shows what there is."
        )
    cache = default_cache_dir()
    chosen = [entry for entry in entries(cache) if _is_meant(entry, args)]
    if args.dry_run:
        for entry in chosen:
            print("would remove  " + _line(entry, cache))
        print(f"{_counted(len(chosen))} would be removed, {_total(chosen)}")
        return
    gone, kept = [], 0
    for removal in remove(chosen):
        if removal.kept is None:
            gone.append(removal.entry)
            print("removed  " + _line(removal.entry, cache), flush=True)
        else:
            kept += 1
            name = removal.entry.path.relative_to(cache)
            print(f"declutr cache prune: kept {name}: {removal.kept}.", file=sys.stderr)
    remove_free_locks(cache)
    print(f"{_counted(len(gone))} removed, {_total(gone)}" + (f"; {kept} kept" if kept else ""))


def _is_meant(entry: Entry, args: argparse.Namespace) -> bool:
    return (
        entry.kind is not None
        and (not args.kind or entry.kind in args.kind)
        and (not args.older_than or time.time() - entry.used > args.older_than)
        and (not args.larger_than or entry.size > args.larger_than)
    )


def _counted(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _total(chosen: list[Entry]) -> str:
    return in_bytes(sum(entry.size for entry in chosen))


def _line(entry: Entry, cache: Path) -> str:
    name = str(entry.path.relative_to(cache))
    if entry.kind is None:
        return f"{'-':<13} {'-':>9} {'-':>12}  {name}  ({entry.about})"
    age = _in_words(time.time() - entry.used)
    return f"{entry.kind:<13} {in_bytes(entry.size):>9} {age:>12}  {name}  ({entry.about})"


def _in_words(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def in_bytes(size: int) -> str:
    """Return a number of bytes in words, such as `"1.5 GB"`, in powers of 1024."""
    amount, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:.0f} {units[0]}" if units[0] == "bytes" else f"{amount:.1f} {units[0]}"


def _age(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip().lower())
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"got '{text}', expected an age such as 12h, 30d or 8w")
    return float(match[1]) * _SECONDS[match[2]]


def _size(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)(?:i?b)?", text.strip().lower())
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"got '{text}', expected a size such as 500M or 2G")
    return float(match[1]) * _BYTES[match[2]]
