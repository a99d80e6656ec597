"""What the tests of deploy share: a PATH whose commands are shell scripts of the test's own, such as a Docker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

VERSION = {
    "Client": {"Version": "28.2.2"},
    "Server": {"Version": "20.10.24", "ApiVersion": "1.41", "Os": "linux", "Arch": "amd64"},
}


class Commands:
    """A folder that is the whole PATH, with commands that say and end as they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("sh", "cat", "sleep"):
            (folder / name).symlink_to(str(shutil.which(name)))

    def script(self, name: str, body: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (self.folder / name).chmod(0o755)

    def says(self, name: str, out: str = "", err: str = "", code: int = 0) -> None:
        self.script(name, f"cat <<'EOT'\n{out}\nEOT\ncat >&2 <<'EOT'\n{err}\nEOT\nexit {code}")


def container(service: str, status: str = "running", health: str | None = None, **more: Any) -> dict[str, Any]:
    state: dict[str, Any] = {"Status": status, "Running": status in ("running", "paused", "restarting"), "ExitCode": 0}
    state |= {"Pid": 17, "StartedAt": "2026-01-02T03:04:05.678901234Z", **more}
    if health:
        state["Health"] = {"Status": health, "Log": [{"Output": "not ready: no controller\n"}]}
    labels = {
        "com.docker.compose.project": "p",
        "com.docker.compose.service": service,
        "com.docker.compose.project.config_files": "/there/compose.yaml",
    }
    networks = {"Networks": {"p_wan": {}, "p_ewr": {}}}
    return {
        "Id": f"{service}-{'0' * 64}", "State": state, "RestartCount": more.get("RestartCount", 0),
        "Config": {"Labels": labels}, "NetworkSettings": networks,
    }  # fmt: skip


class Docker:
    """The command `docker`, and docker-compose 1.29; each call is kept in a file."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self.calls_file = commands.folder / "calls"
        self.calls_file.touch()
        self.answers: dict[str, str] = {"version --format": json.dumps(VERSION), "image inspect": "sha256:1"}
        self.compose("exit 0")
        self.has()

    def has(self, *containers: dict[str, Any]) -> None:
        self.answers["ps --all"] = "\n".join(each["Id"] for each in containers)
        self.answers["inspect --type=container"] = json.dumps(list(containers))
        self._write()

    def answer(self, words: str, out: str) -> None:
        self.answers[words] = out
        self._write()

    def refuse(self, words: str, err: str) -> None:
        self.answers[words] = f"\0{err}"
        self._write()

    def _write(self) -> None:
        cases = []
        for words, out in self.answers.items():
            to, code = (">&2", 1) if out.startswith("\0") else ("", 0)
            cases.append(f"'{words}') cat {to} <<'EOT'\n{out.lstrip(chr(0))}\nEOT\nexit {code};;")
        body = f'echo "docker $*" >> "{self.calls_file}"\ncase "$1 $2" in\n' + "\n".join(cases)
        self.commands.script("docker", f"{body}\n'compose version') exit 1;;\nesac")

    def compose(self, body: str) -> None:
        head = f'echo "docker-compose $*" >> "{self.calls_file}"\n[ "$1" = version ] && {{ echo 1.29.2; exit 0; }}\n'
        self.commands.script("docker-compose", head + body)

    def calls(self, begin: str) -> list[str]:
        return [line for line in self.calls_file.read_text().splitlines() if line.startswith(begin)]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(made.folder))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return made


@pytest.fixture
def docker(commands: Commands) -> Docker:
    return Docker(commands)
