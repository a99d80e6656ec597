"""What has to be done to the processes of a topology that runs, so that they are as its file says now. Pure.

The processes that run are compared with those that the file asks for, by their command lines: what is the same goes on
without a pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .nodes import KIND
from .supervisor import ProcessSpec

LISTEN, DATA, APP, DIGEST = "--listen", "--data", "app", "digest"
SOURCE = "--source-alias"
# A broker reads these at its start alone, and goes on without them: they are for it when it starts next.
FOR_THE_NEXT_START = (
    "--set controller.quorum.bootstrap.servers", "--set controller.quorum.initial.controllers",
)  # fmt: skip
LEFT = {"mirror": "what it has copied stays", "worker": "the tables and offsets of its app stay"}
SPOKEN = {"--bootstrap": "datacenter's address", SOURCE: "source"}  # for people; others as they are


@dataclass(frozen=True)
class ProcessStep:
    """What is to be done to one process. verb: start, restart or stop. spec: as it is to be; as it was, of one that
    ends. details: what is different, or what one that ends leaves; for people."""

    verb: str
    spec: ProcessSpec
    details: tuple[str, ...] = ()


def plan_processes(
    running: Mapping[str, ProcessSpec], wanted: Iterable[ProcessSpec]
) -> tuple[list[ProcessStep], list[ProcessSpec], list[str]]:
    """The steps, in the order of `wanted` after those that end; the specs that count from a process's next start on;
    and what cannot be done while it runs, with the way out."""
    wanted = list(wanted)
    names = {each.name for each in wanted}
    ending = [spec for name, spec in reversed(list(running.items())) if name not in names]
    steps = [ProcessStep("stop", spec, _left(spec)) for spec in ending]
    for_later: list[ProcessSpec] = []
    refused: list[str] = []
    for spec in wanted:
        old = running.get(spec.name)
        if old is None:
            steps.append(ProcessStep("start", spec))
            continue
        changed = list(_changed(arguments(old), arguments(spec)))
        refused += [f"{spec.name}: {problem}" for key, *_ in changed if (problem := _impossible(key))]
        if details := tuple(_detail(each, spec.kind) for each in changed if each[0] not in FOR_THE_NEXT_START):
            steps.append(ProcessStep("restart", spec, details))
        elif spec != old:
            for_later.append(spec)
    return steps, for_later, refused


def arguments(spec: ProcessSpec) -> dict[str, str]:
    """What a process is told, by what it is about: `--topics`, `--set num.partitions`, `app`."""
    found: dict[str, str] = {}
    for each in spec.command[spec.command.index("-m") + 2 :] if "-m" in spec.command else ():
        key, mark, value = each.partition("=")
        if key == "--set":
            key, _, value = value.partition("=")
            found[f"--set {key}"] = value
        elif mark and key == LISTEN:
            found[LISTEN] = ",".join(filter(None, (found.get(LISTEN), value)))
        elif mark and key.startswith("--"):
            found[key] = value
        else:
            found[APP] = each
    if DIGEST in spec.facts:
        found[DIGEST] = str(spec.facts[DIGEST])
    return found


def _left(spec: ProcessSpec) -> tuple[str, ...]:
    """What stays of a process that ends, since nothing here removes it."""
    if spec.kind == KIND:
        return (f"its records stay in {arguments(spec).get(DATA)}",)
    return (LEFT[spec.kind],) if spec.kind in LEFT else ()


Changed = tuple[str, str | None, str | None]  # a key, what it was, what it is to be


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Changed]:
    for key in [*new, *(key for key in old if key not in new)]:
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)


def _impossible(key: str) -> str:
    match key:
        case "--listen":
            return (
                "where a datacenter listens is what its clients know, and stays as long as it runs: `isthmus down`, "
                "then `isthmus up`, changes it"
            )
        case "--source-alias":
            return (
                "the source of a link stays, since what it has made in its target is of that source: give the new link "
                "another name"
            )
    return ""


def _detail(changed: Changed, kind: str) -> str:
    key, was, is_now = changed
    if key == DIGEST:
        return "the app's file has changed"
    name = SPOKEN.get(key, key.removeprefix("--set ").removeprefix("--"))
    unset = "the default" if kind == KIND else "none"
    return f"{name} {unset if was is None else was} -> {unset if is_now is None else is_now}"
