"""What goes into the image, where its bases come from, and that each thing that is missing is one line."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from isthmus.deploy.engine import EngineError
from isthmus.deploy.image import base, build, context
from isthmus.deploy.image.build import Choice
from tests.deploy.conftest import Commands

ROOT = Path(__file__).resolve().parents[2]


def one_line(error: pytest.ExceptionInfo[EngineError]) -> str:
    text = str(error.value)
    assert len(text.splitlines()) == 1
    return text


# --- Context --------------------------------------------------------------------------------------------------------


def test_the_context_holds_what_builds_the_project_and_nothing_that_was_built(tmp_path: Path) -> None:
    context.copy_source(tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files >= {
        "Dockerfile", "requirements/image.lock", "requirements/build.lock", "source/pyproject.toml", "source/setup.py",
        "source/README.md", "source/LICENSE", "source/src/isthmus/protocol/_records.py",
        "source/src/isthmus/examples/flights/topology.yaml", "source/src/pyspark_isthmus/__init__.py",
    }  # fmt: skip
    assert not [name for name in files if name.endswith((".so", ".pyc", ".pxd")) or "/." in name]
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert (tmp_path / "source/setup.py").read_bytes() == (ROOT / "setup.py").read_bytes()


def test_what_compiles_the_modules_has_each_of_them(tmp_path: Path) -> None:
    """The step that compiles comes before the rest of the source, and so has a list of its own of what it takes."""
    context.copy_source(tmp_path)
    lines = (tmp_path / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    [compiles] = [number for number, line in enumerate(lines) if "setup.py --quiet build_ext" in line]
    taken = [word for line in lines[:compiles] if line.startswith("COPY source/") for word in line.split()[1:-1]]
    files = {found for pattern in taken for path in tmp_path.glob(pattern) for found in [path, *path.rglob("*")]}
    source = tmp_path / "source/src/isthmus"
    names = re.findall(r'^    "((?:\w+/)*_\w+)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert len(names) > 15
    assert source / "compiled.py" in files
    for module in (source / f"{name}.py" for name in names):
        assert {module, module.parent / "__init__.py"} <= files, module.name


def test_the_digest_is_that_of_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    for folder in (first, second, third):
        folder.mkdir()
    digest = context.copy_source(first)
    assert context.copy_source(second) == digest
    package = tmp_path / "isthmus"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.setattr(context, "_package", lambda name: package)
    assert context.copy_source(third) != digest


def fake_pip(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """A Python whose pip notes that it was called and does as told; gives the note."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> "{folder}/calls"\n{body}\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder / "calls"


MAKES_DEST = 'while [ "$1" != --dest ]; do shift; done; mkdir -p "$2"; touch "$2/a.whl"'


def test_packages_are_fetched_once_by_hash_for_the_image_and_not_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_pip(tmp_path, monkeypatch, MAKES_DEST)
    said: list[str] = []
    folder = context.fetched("image.lock", "arm64", said.append)
    assert context.fetched("image.lock", "arm64", said.append) == folder
    assert [path.name for path in folder.iterdir()] == ["a.whl"]
    [call] = calls.read_text().splitlines()
    for words in ("--require-hashes", "--only-binary :all:", "--python-version 3.11", "manylinux_2_17_aarch64"):
        assert words in call
    assert "x86_64" not in call
    assert ["fetching" in said[0], "kept" in said[1]] == [True, True]
    assert context.fetched("image.lock", "amd64", said.append) != folder


@pytest.mark.parametrize(
    ("pip", "why"),
    [
        ("echo /usr/bin/python3: No module named pip >&2; exit 1", "has no pip"),
        (
            "echo 'WARNING: Retrying' >&2; echo 'ERROR: Could not find a version of x' >&2; exit 1",
            "cannot fetch the packages of image.lock: Could not find a version of x",
        ),
    ],
)
def test_packages_that_cannot_be_fetched_are_one_line_and_leave_nothing(
    pip: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(tmp_path, monkeypatch, pip)
    with pytest.raises(EngineError) as error:
        context.fetched("image.lock", "amd64", lambda text: None)
    assert why in one_line(error)
    assert list((tmp_path / "cache/isthmus/wheels").iterdir()) == []


def test_an_engine_of_another_kind_of_machine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(EngineError, match="runs on s390x; images are built for amd64 and arm64"):
        context.fetched("image.lock", "s390x", lambda text: None)


# --- Bases ----------------------------------------------------------------------------------------------------------

PROBED = "echo 3.11 glibc /usr/local/bin/python3"


def docker(commands: Commands, here: str = "", pull: str = "", run: str = PROBED) -> None:
    """A docker that holds the images `here` and whose `pull` and `run` do as told."""
    commands.script(
        "docker",
        f"""
        case "$1 $2" in
        'image ls') for last; do :; done; case " {here} " in *" $last "*) echo sha256:0123 ;; esac ;;
        'pull '*) {pull or "exit 0"} ;;
        'run '*) {run} ;;
        *) echo "unexpected: $*" >&2; exit 9 ;;
        esac""",
    )


def chosen(choice: Choice) -> tuple[tuple[str, str], list[str]]:
    said: list[str] = []
    return build._bases(choice, said.append), said


CANNOT = "echo 'Error response from daemon: Get \"https://registry/v2/\": dial tcp: no such host' >&2; exit 1"


def test_bases_that_are_here_are_taken_and_others_pulled(commands: Commands) -> None:
    docker(commands, here=f"{build.BASE} {build.BUILD_BASE}", pull="exit 1")
    assert chosen(Choice()) == ((build.BASE, build.BUILD_BASE), [])
    docker(commands, here=build.BASE)
    assert chosen(Choice()) == ((build.BASE, build.BUILD_BASE), [f"base {build.BUILD_BASE}: pulling it"])


def test_without_a_registry_the_bases_are_made_by_debootstrap_and_it_is_said(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker(commands, pull=CANNOT)
    monkeypatch.setattr(base, "why_not", lambda: "")
    monkeypatch.setattr(base, "made", lambda recipe, mirror, say: recipe.tag)
    bases, said = chosen(Choice())
    assert bases == (base.RUN.tag, base.BUILD.tag)
    assert "no such host" in said[-1] and "made by debootstrap instead" in said[-1]
    assert chosen(Choice(spark=True))[0] == (base.JAVA.tag, base.BUILD.tag)
    docker(commands, pull="echo pulled although it must not >&2; exit 9")
    assert chosen(Choice(debootstrap=True)) == ((base.RUN.tag, base.BUILD.tag), [])


def test_without_a_registry_and_debootstrap_the_way_out_is_named(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker(commands, pull=CANNOT)
    monkeypatch.setattr(base, "why_not", lambda: "making a base needs debootstrap: `apt install debootstrap`")
    with pytest.raises(EngineError) as error:
        chosen(Choice())
    text = one_line(error)
    assert all(part in text for part in ("no such host", "--base and --build-base", "apt install debootstrap"))


def test_a_base_that_was_asked_for_is_never_replaced(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    docker(commands, pull=CANNOT)
    monkeypatch.setattr(base, "made", lambda recipe, mirror, say: pytest.fail("made a base that nobody asked for"))
    with pytest.raises(EngineError, match="no such host"):
        chosen(Choice(base="mine:1"))


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (
            "echo 3.13 glibc /usr/local/bin/python3",
            "has Python 3.13 on glibc; the image's packages are for Python 3.11",
        ),
        ("echo 3.11 other /usr/local/bin/python3", "has Python 3.11 on other"),
        ("echo 'exec: python3: executable file not found' >&2; exit 127", "its python3 does not run"),
        (
            'case "$*" in *mine*) echo 3.11 glibc /usr/bin/python3 ;; *) echo 3.11 glibc /opt/p ;; esac',
            "must be the same",
        ),
    ],
)
def test_a_base_that_does_not_fit_is_named(run: str, why: str, commands: Commands) -> None:
    docker(commands, here=f"mine:1 {build.BUILD_BASE}", run=run)
    with pytest.raises(EngineError) as error:
        chosen(Choice(base="mine:1"))
    assert why in one_line(error) and "mine:1" in one_line(error)


def test_what_keeps_debootstrap_from_running_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PATH", str(tmp_path))
    monkeypatch.setattr(base, "KEYRING", tmp_path / "keyring")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in base.why_not()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "apt install debootstrap" in base.why_not()
    (tmp_path / "debootstrap").write_text("#!/bin/sh\n")
    (tmp_path / "debootstrap").chmod(0o755)
    assert "apt install debian-archive-keyring" in base.why_not()
    (tmp_path / "keyring").touch()
    assert base.why_not() == ""


def test_what_debootstrap_says_is_the_error(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker(commands)
    commands.says("debootstrap", "E: Failed getting release file http://nowhere/Release\nI: bye", code=1)
    monkeypatch.setattr(base, "PATH", f"{commands.folder}:{base.PATH}")
    monkeypatch.setattr(base, "why_not", lambda: "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(EngineError, match="debootstrap: Failed getting release file http://nowhere/Release"):
        base.made(base.RUN, "http://nowhere", lambda text: None)
