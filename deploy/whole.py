"""Files that others read while they are written anew."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """By a rename: who reads meanwhile, or after a crash, has either all of the old or all of the new.

    Raises OSError, and then all is as before.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
