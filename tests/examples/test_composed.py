"""What a demo in containers that was killed has left, by a Docker that is a shell script."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.deploy.topology import load
from isthmus.examples.flights import demo
from isthmus.examples.flights.composed import COMPOSE_FILE, PROJECT_FILE, Composed, end_left, was_composed
from isthmus.examples.flights.stage import TOPOLOGY, DemoError
from isthmus.testing import owner
from tests.deploy.conftest import Docker, container

DOWN = "docker-compose -p isthmus-demo -f {} down -v --remove-orphans -t 10"


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a demo that is gone, with a compose file; the only one there is."""
    monkeypatch.setattr(owner.tempfile, "tempdir", str(tmp_path))
    mine = owner.make_folder(demo.PREFIX)
    made = mine.rename(tmp_path / mine.name.replace(f"-{os.getpid()}-", "-4194999-"))  # beyond any pid
    (made / PROJECT_FILE).write_text("isthmus-demo")
    (made / COMPOSE_FILE).touch()
    return made


def networks_until_down(docker: Docker) -> None:
    """One that `down` removes."""
    there = docker.commands.folder / "network"
    there.write_text("isthmus-demo_wan\n")
    body = (docker.commands.folder / "docker").read_text().partition("\n")[2]
    docker.commands.script("docker", f"[ \"$1\" = network ] && cat '{there}' && exit 0\n{body}")
    docker.compose(f": > '{there}'")


def of(folder: Path) -> dict[str, Any]:
    made = container("ewr-broker")
    made["Config"]["Labels"]["com.docker.compose.project.config_files"] = str(folder / COMPOSE_FILE)
    return made


def test_the_next_takes_it_down_before_it_removes_the_folder(
    docker: Docker, left: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    networks_until_down(docker)
    demo.remove_left(composed=True)
    assert docker.calls("docker-compose -p") == [DOWN.format(left / COMPOSE_FILE)]
    assert not left.exists()
    assert "project isthmus-demo is of a demo that was killed" in capsys.readouterr().out


def test_a_demo_without_containers_leaves_it_to_one_that_has_them(docker: Docker, left: Path) -> None:
    networks_until_down(docker)
    demo.remove_left(composed=False)
    assert left.exists() and docker.calls("docker") == []
    (left / PROJECT_FILE).unlink()  # the control: it was spared for what it may have made
    demo.remove_left(composed=False)
    assert not left.exists()


def test_what_cannot_be_taken_down_keeps_its_folder_and_is_told(docker: Docker, left: Path) -> None:
    docker.has(of(left))
    docker.compose("echo 'ERROR: no way' >&2; exit 1")
    with pytest.raises(DemoError, match=f"has left in {left} cannot be ended: docker-compose down: no way"):
        demo.remove_left(composed=True)
    assert (left / COMPOSE_FILE).exists() and was_composed(left)


def test_containers_of_another_run_are_left_alone(docker: Docker, left: Path) -> None:
    """A person ended the killed one's by hand, and a later one with --keep has the name now."""
    docker.has(of(left.parent))
    end_left(left, print)
    assert not left.exists()
    assert docker.calls("docker-compose -p") == []


@pytest.mark.parametrize("name", ["", "isthmus-demo"])
def test_a_kill_before_anything_was_made_leaves_a_folder_only(docker: Docker, left: Path, name: str) -> None:
    (left / PROJECT_FILE).write_text(name)
    end_left(left, print)
    assert not left.exists()
    assert docker.calls("docker-compose -p") == []


def test_folders_of_others_and_links_are_left_alone(
    docker: Docker, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / f"{left.name}-link"
    link.symlink_to(left)
    end_left(link, print)
    assert left.exists() and link.exists()
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    end_left(left, print)
    assert left.exists() and docker.calls("docker") == []


def test_the_name_of_the_project_is_there_before_anything_of_it(
    docker: Docker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Composed(load(TOPOLOGY), TOPOLOGY, tmp_path / "made", 19_592)
    seen: list[bool] = []
    monkeypatch.setattr(stage.project, "up", lambda heard: seen.append(was_composed(stage.folder)))
    asyncio.run(stage.start(lambda line: None))
    assert seen == [True]
    assert (stage.folder / PROJECT_FILE).read_text() == stage.project.name == "isthmus-demo-19592"
