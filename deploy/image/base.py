"""Bases for the image where no registry can be reached: small Debian 12 systems, made by debootstrap.

Needs root, debootstrap and a Debian mirror, on the host only. Each base is imported into the engine under a name that
holds a digest of its recipe, and made once; the packages are kept for the next.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .. import engine
from ..engine import EngineError, last_line
from .context import Say, cache

SUITE = "bookworm"  # its Python is the one that context.PYTHON names
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # debootstrap lies in sbin
TIMEOUT_S = 1_200.0
IMPORT_TIMEOUT_S = 300.0
# Manuals, translations and what apt and debootstrap leave; licences stay.
SLIM = r"""
find usr/share/doc -depth -type f ! -name copyright -delete
find usr/share/doc -depth -type d -empty -delete
rm -rf usr/share/man usr/share/info usr/share/locale usr/share/lintian debootstrap etc/resolv.conf etc/hostname
find var/cache var/log var/lib/apt/lists -type f -delete
"""


@dataclass(frozen=True)
class Recipe:
    """A base: what it is for, and Debian's packages beside the essential ones."""

    name: str
    packages: tuple[str, ...]

    @property
    def tag(self) -> str:
        text = " ".join((SUITE, SLIM, *self.packages))
        return f"isthmus-base:{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


RUN = Recipe("python", ("python3",))
BUILD = Recipe("build", ("python3", "python3-venv", "python3-dev", "gcc", "libc6-dev"))
JAVA = Recipe("java", ("python3", "openjdk-17-jre-headless"))


def why_not() -> str:
    """What keeps this machine from making a base, with the way out; empty when nothing does."""
    if os.geteuid() != 0:
        return "making a base by debootstrap needs root: run the command with sudo"
    if not shutil.which("debootstrap", path=PATH):
        return "making a base needs debootstrap: `apt install debootstrap`"
    if not KEYRING.exists():
        return "making a base needs the keys of Debian's archive: `apt install debian-archive-keyring`"
    return ""


def made(recipe: Recipe, mirror: str, say: Say) -> str:
    """The tag of a base, made and imported if the engine does not hold it yet. Raises EngineError.

    `mirror`: URL of a Debian mirror; empty for debootstrap's own choice.
    """
    if engine.has_image(recipe.tag):
        return recipe.tag
    if why := why_not():
        raise EngineError(why)
    say(f"base {recipe.tag}: making it by debootstrap")
    packages = cache() / "debs"
    packages.mkdir(parents=True, exist_ok=True)
    # Not in /tmp, which may be memory, or mounted so that no device can be made in it.
    work = Path(tempfile.mkdtemp(prefix="isthmus-base-", dir="/var/tmp"))
    try:
        root, archive = work / "root", work / "root.tar"
        _run(
            *("debootstrap", "--variant=minbase", "--force-check-gpg", f"--keyring={KEYRING}"),
            *(f"--cache-dir={packages}", f"--include={','.join(recipe.packages)}", SUITE, str(root)),
            *((mirror,) if mirror else ()),
        )
        _run("sh", "-ec", SLIM, folder=root)
        _run(
            *("tar", "--create", "--file", str(archive), "--numeric-owner", "--one-file-system", "--sort=name"),
            *("--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*", "."),
            folder=root,
        )
        engine.docker("import", "--change", 'CMD ["python3"]', str(archive), recipe.tag, timeout_s=IMPORT_TIMEOUT_S)
    finally:
        # One file system: whatever debootstrap may have left mounted when it was killed is not ours to delete.
        _run("rm", "-rf", "--one-file-system", str(work))
    return recipe.tag


def _run(*command: str, folder: Path | None = None) -> None:
    environment = {**os.environ, "PATH": PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, umask=0o022, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise EngineError(f"{command[0]} was not done within {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        said = done.stdout + done.stderr
        errors = [line.removeprefix("E: ") for line in said.splitlines() if line.startswith("E: ")]
        raise EngineError(f"{command[0]}: {errors[-1] if errors else last_line(said)}")
