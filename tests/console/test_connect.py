"""What `--bootstrap` stands for: an address, or a datacenter of a topology that was started from this folder."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from isthmus.client import Client
from isthmus.client.errors import ConnectionLost
from isthmus.console import connect
from isthmus.console.connect import resolve
from isthmus.deploy.errors import DeployError
from isthmus.deploy.supervisor import start_ticks


def topology(home: Path, name: str, addresses: dict[str, str], is_running: bool = False) -> None:
    folder = home / name
    folder.mkdir()
    (folder / "addresses.json").write_text(json.dumps(addresses))
    if is_running:
        state = {"pid": os.getpid(), "start": start_ticks(os.getpid()), "processes": []}
        (folder / "supervisor.json").write_text(json.dumps(state))


def test_addresses_stand_for_themselves(tmp_path: Path):
    assert resolve("h:1,i:2", tmp_path) == "h:1,i:2"


def test_a_datacenter_is_found_by_its_name_also_when_it_does_not_run(tmp_path: Path):
    topology(tmp_path, "one", {"ewr": "h:1"})
    topology(tmp_path, "two", {"jfk": "h:2"}, is_running=True)
    assert [resolve(name, tmp_path) for name in ("ewr", "jfk")] == ["h:1", "h:2"]
    with pytest.raises(DeployError, match=r"'lga' is neither .* \(datacenters known here: ewr, jfk\)"):
        resolve("lga", tmp_path)


def test_a_damaged_file_of_addresses_is_named(tmp_path: Path):
    topology(tmp_path, "one", {"ewr": "h:1"})
    (tmp_path / "one/addresses.json").write_text("{")
    with pytest.raises(DeployError, match=r"one/addresses\.json cannot be read \(.+\): remove it"):
        resolve("ewr", tmp_path)


@pytest.mark.parametrize("running", ["a", "z"])
def test_of_two_topologies_with_such_a_datacenter_it_is_the_one_that_runs(tmp_path: Path, running: str):
    """It was the one whose name comes last, running or not: commands went to a broker of another topology."""
    topology(tmp_path, "a", {"ewr": "h:1"}, is_running=running == "a")
    topology(tmp_path, "z", {"ewr": "h:2"}, is_running=running == "z")
    assert resolve("ewr", tmp_path) == {"a": "h:1", "z": "h:2"}[running]


@pytest.mark.parametrize("is_running", [False, True])
def test_where_nothing_tells_which_is_meant_both_are_named(tmp_path: Path, is_running: bool):
    topology(tmp_path, "a", {"ewr": "h:1"}, is_running)
    topology(tmp_path, "z", {"ewr": "h:2"}, is_running)
    with pytest.raises(DeployError, match=r"several topologies have a datacenter 'ewr': .*, h:1 of a, h:2 of z"):
        resolve("ewr", tmp_path)


@pytest.mark.parametrize("bootstrap", [connect.DEFAULT_BOOTSTRAP, "127.0.0.1:2"])
def test_who_has_forgotten_which_datacenter_is_told_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str
):
    class Lost(Client):
        async def start(self, timeout_ms: float = 0) -> None:
            raise ConnectionLost(f"no broker of {bootstrap} answers")

    monkeypatch.setattr(connect, "Client", Lost)
    monkeypatch.setattr(connect, "HOME", tmp_path)
    topology(tmp_path, "one", {"ewr": "h:1", "jfk": "h:2"})
    said = DeployError if bootstrap == connect.DEFAULT_BOOTSTRAP else ConnectionLost

    async def run() -> None:
        async with connect.connected(bootstrap):
            pass

    with pytest.raises(said) as told:
        asyncio.run(run())
    assert ("-b takes the names of datacenters, too: ewr, jfk" in str(told.value)) is (said is DeployError)
