"""The simulated disk: one per machine, in memory, that knows what is synced and what a power cut may take.

A file is its volatile bytes plus what is needed to rebuild its durable ones: the durable size and the old content
of pages changed since the last sync. A power cut keeps, per file, nothing, all, a torn prefix or a mixture of
pages of what was not synced.

Names are kept apart from files, by directory (`directory.py`). A power cut keeps or loses each create, rename and
unlink since the last sync of its directory by itself, in any combination: only changes of the same name keep their
order. The sync of a directory covers its own names alone, neither its parent's nor its children's. The sync of a file
says nothing of names, but the product's `File.sync` also syncs the directory the first time after it made the file.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isthmus.core_broker.storage.disk.files import DirectoryLocked, Volume

from .directory import Directory
from .file import Held, SimFile
from .inode import Buffer, Inode

if TYPE_CHECKING:
    from .hosts import Process
    from .runner import Simulation

DEFAULT_CAPACITY_BYTES = 1 << 40
POOL_THREADS = 4
# Seconds a pooled call takes: mostly a fast disk, sometimes a stall.
CALL_S = (0.0001, 0.003)
STALL_S = (0.02, 0.4)
STALL_CHANCE = 0.02


class SimDisk:
    """A machine's disk. Faults: `capacity_bytes`, `fail`, and a crash at the n-th operation."""

    def __init__(self, sim: Simulation, name: str, chance: random.Random) -> None:
        self.sim = sim
        self.name = name
        self.random = chance
        self.capacity_bytes = DEFAULT_CAPACITY_BYTES
        self.boots = 1
        self.used_bytes = 0
        self.names: dict[str, Inode] = {}
        self.root = Directory()
        self.directories: dict[str, Directory] = {"/": self.root}
        self.locks: dict[str, object] = {}
        self.operations = 0
        self.crash_countdown = 0
        self.crash_from = ""  # the countdown begins with the first operation on a path that has this in it
        self.crash_hook: Callable[[], None] | None = None
        self.slowness = 1.0  # by which a pooled call takes longer
        self.cold_share = 0.0  # of looks at what is cached that find it is not
        self.busy = 0
        self.waiting: list[tuple[Process, Callable[[], None]]] = []
        self.inspect: Callable[[str, str], None] | None = None  # is told of each call, and may raise an OSError for it
        self._faults: list[tuple[str, str, int, int]] = []
        self._inodes = 0

    # -- faults

    def fail(self, operation: str, error: int, *, containing: str = "", after: int = 0) -> None:
        """Let one coming `operation` (append, sync, rename, …) on a path with `containing` in it raise `error`."""
        self._faults.append((operation, containing, error, after))

    def look(self, operation: str, path: str) -> None:
        """One call is about to happen."""
        if self.inspect is not None:
            self.inspect(operation, path)

    def step(self, operation: str, path: str) -> None:
        """One durable operation is about to happen: raise what was planned for it."""
        self.look(operation, path)
        self.operations += 1
        if self.crash_from and self.crash_from in path:
            self.crash_from = ""
        for index, (name, containing, error, after) in enumerate(self._faults):
            if name == operation and containing in path:
                if after > 0:
                    self._faults[index] = (name, containing, error, after - 1)
                    continue
                del self._faults[index]
                self.sim.trace.add("fault", self.name, operation, path, error)
                self.sim.counters[f"disk_{errno.errorcode[error]}"] += 1
                raise OSError(error, os.strerror(error), path)

    def crash_point(self, process: Process) -> None:
        """Called before and after each operation: the planned kill happens at one of these points."""
        if self.crash_countdown > 0 and not self.crash_from:
            self.crash_countdown -= 1
            if self.crash_countdown == 0 and self.crash_hook is not None:
                hook, self.crash_hook = self.crash_hook, None
                hook()
                process.check_alive()

    def put_off_the_crash(self, points: int) -> None:
        """The planned kill comes so many points later: what nobody could know of, nobody can be asked to mend."""
        if self.crash_countdown > 0 and not self.crash_from:
            self.crash_countdown += points

    def room_for(self, count: int, path: str) -> None:
        if self.used_bytes + count > self.capacity_bytes:
            self.sim.trace.add("fault", self.name, "full", path)
            self.sim.counters["disk_ENOSPC"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def replace(self) -> None:
        """Another disk, an empty one, is in the machine, which is switched off."""
        self.names, self.root = {}, Directory()
        self.directories = {"/": self.root}
        self.used_bytes = 0
        self._faults = []
        self.sim.trace.add("replaced", self.name)
        self.sim.counters["disks_replaced"] += 1

    # -- names

    def make_file(self, path: str) -> None:
        self._inodes += 1
        inode = Inode(self._inodes, path)
        self.names[path] = inode
        self._change(path, inode)

    def make_directory(self, path: str) -> None:
        made = self.directories[path] = Directory()
        self._change(path, made)

    def remove(self, path: str) -> None:
        """A file, or a directory that is empty."""
        if self.names.pop(path, None) is None:
            del self.directories[path]
        self._change(path, None)

    def rename(self, source: str, target: str) -> None:
        """Within one directory: the product has no other use of it."""
        parent = posixpath.dirname(source)
        assert parent == posixpath.dirname(target), f"{source} to another directory, {target}"
        node = self.names.get(source) or self.directories[source]
        paths: dict[str, Any]
        for paths in (self.names, self.directories):
            for old in _below(paths, source):
                paths[target + old[len(source) :]] = paths.pop(old)
        self.directories[parent].change({posixpath.basename(source): None, posixpath.basename(target): node})

    def _change(self, path: str, node: Inode | Directory | None) -> None:
        self.directories[posixpath.dirname(path)].change({posixpath.basename(path): node})

    def durable_files(self, directory: str) -> dict[str, Inode]:
        """The files that are in a directory whatever a power cut takes, by path."""
        found: Inode | Directory | None = self.root
        for name in directory.strip("/").split("/"):
            found = found.durable.get(name) if isinstance(found, Directory) else None
        if not isinstance(found, Directory):
            return {}
        return {f"{directory}/{name}": each for name, each in found.durable.items() if isinstance(each, Inode)}

    # -- ends of life

    def process_killed(self) -> None:
        self.locks.clear()
        self.waiting.clear()
        self.busy = 0
        self.crash_hook = None
        self.crash_countdown = 0
        self.crash_from = ""
        self._faults.clear()

    def crash(self) -> None:
        """The power is gone: only what is durable stays, and by chance some of the rest."""
        chance = self.random
        self.boots += 1
        lost_names = sum(self.directories[path].crash(chance) for path in sorted(self.directories))
        self.names, self.directories = {}, {}
        self._find("", self.root)
        lost = torn = 0
        for path in sorted(self.names):
            inode = self.names[path]
            how, bytes_lost = inode.crash(chance)
            if how != "clean":
                self.sim.trace.add("crash", self.name, path, how, bytes_lost)
                self.sim.counters[f"crash_{how}"] += 1
            lost += bytes_lost
            torn += how in ("torn", "mixed")
        self.used_bytes = sum(len(inode.data) for inode in self.names.values())
        counters = self.sim.counters
        counters["crash_lost_bytes"] += lost
        counters["crash_lost_names"] += lost_names
        counters["crashes_with_loss"] += lost > 0
        counters["crashes_torn"] += torn > 0

    def _find(self, path: str, directory: Directory) -> None:
        """What is on disk, from a directory on."""
        self.directories[path or "/"] = directory
        for name, node in directory.durable.items():
            if isinstance(node, Directory):
                self._find(f"{path}/{name}", node)
            else:
                self.names[f"{path}/{name}"] = node


def _below(paths: dict[str, Any], path: str) -> list[str]:
    return [name for name in paths if name == path or name.startswith(path + "/")]


class SimFiles:
    """The product's files interface over the disk of one machine, for one process."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self.disk = disk
        self.process = process

    def absolute(self, path: str | os.PathLike[str]) -> str:
        return posixpath.normpath("/" + os.fspath(path).lstrip("/"))

    def _path(self, path: str | os.PathLike[str]) -> str:
        self.process.check_alive()
        return self.absolute(path)

    def _change(self, operation: str, path: str, change: Callable[[], None]) -> None:
        disk = self.disk
        disk.crash_point(self.process)
        disk.step(operation, path)
        change()
        disk.sim.trace.add(operation, disk.name, path)
        disk.crash_point(self.process)

    def open(self, path: str, *, create: bool = True) -> SimFile:
        path = self._path(path)
        inode = self.disk.names.get(path)
        is_new = inode is None
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if posixpath.dirname(path) not in self.disk.directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            self._change("create", path, lambda: self.disk.make_file(path))
            inode = self.disk.names[path]
        else:
            self.disk.look("open", path)
        return SimFile(self, inode, path, is_new)

    def new(self, path: str) -> SimFile:
        """Made by the first call that needs it."""
        return SimFile(self, None, self._path(path), True)

    def exists(self, path: str) -> bool:
        path = self._path(path)
        return path in self.disk.names or path in self.disk.directories

    def is_directory(self, path: str) -> bool:
        return self._path(path) in self.disk.directories

    isdir = is_directory

    def listdir(self, path: str) -> list[str]:
        path = self._path(path)
        if path not in self.disk.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.disk.look("listdir", path)
        names = {posixpath.basename(p) for p in self.disk.names if posixpath.dirname(p) == path}
        names |= {posixpath.basename(p) for p in self.disk.directories if p != "/" and posixpath.dirname(p) == path}
        return sorted(names)

    def size(self, path: str) -> int:
        inode = self._inode(path)
        self.disk.look("size", self._path(path))
        return len(inode.data)

    def volume(self, path: str) -> Volume:
        self.disk.look("volume", self._path(path))
        capacity = self.disk.capacity_bytes
        return Volume(self._path(path), capacity, capacity - self.disk.used_bytes)

    def boot_id(self) -> str:
        return f"boot-{self.disk.boots}"

    def _inode(self, path: str) -> Inode:
        path = self._path(path)
        inode = self.disk.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return inode

    def makedirs(self, path: str) -> None:
        path = self._path(path)
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            directory = "/" + "/".join(parts[:depth])
            if directory not in self.disk.directories:
                self._change("mkdir", directory, lambda d=directory: self.disk.make_directory(d))  # type: ignore[misc]

    def rename(self, source: str, target: str) -> None:
        source, target = self._path(source), self._path(target)
        if source not in self.disk.names and source not in self.disk.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if target in self.disk.directories and target != source and _below(self.disk.names, target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        self._change("rename", source, lambda: self.disk.rename(source, target))

    def unlink(self, path: str) -> None:
        self._inode(path)
        path = self._path(path)
        self._change("unlink", path, lambda: self.disk.remove(path))

    def rmtree(self, path: str) -> None:
        path = self._path(path)
        for name in sorted(_below(self.disk.names, path)):
            self._change("unlink", name, lambda n=name: self.disk.remove(n))  # type: ignore[misc]
        for name in sorted(_below(self.disk.directories, path), reverse=True):
            self._change("rmdir", name, lambda n=name: self.disk.remove(n))  # type: ignore[misc]

    def read(self, path: str) -> bytes:
        inode = self._inode(path)
        self.disk.look("read", self._path(path))
        return bytes(inode.data)

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Temporary file, sync, rename, sync of the directory: a crash leaves the old content or the new."""
        path = self._path(path)
        try:
            temporary = self.open(path + ".tmp")
            temporary.truncate(0)
            temporary.append([data])
            temporary.sync_content()
            self.rename(path + ".tmp", path)
        except OSError:
            if path + ".tmp" in self.disk.names:
                self.disk.remove(path + ".tmp")
            raise
        self.sync_directory(posixpath.dirname(path))

    def sync_directory(self, path: str) -> None:
        path = self._path(path)
        if path not in self.disk.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._change("syncdir", path, lambda: self.disk.directories[path].sync())

    def sync_volume(self, path: str) -> bool:
        """All files and names at once, as by syncfs; False when the disk refuses to write one of them."""
        disk = self.disk
        dirty = [inode for inode in disk.names.values() if inode.dirty]
        disk.crash_point(self.process)
        try:
            disk.step("syncvolume", path)
        except OSError as error:
            for inode in dirty:
                inode.lost_by_failed_sync()
                inode.error = error.errno or errno.EIO
            return False
        for inode in dirty:
            inode.sync()
        for directory in disk.directories.values():
            directory.sync()
        disk.sim.trace.add("syncvolume", disk.name, path, len(dirty))
        disk.sim.counters["volume_syncs"] += 1
        disk.crash_point(self.process)
        return True

    def lock(self, path: str) -> Held:
        path = self._path(path)
        self.disk.look("lock", path)
        if path in self.disk.locks:
            raise DirectoryLocked(f"{posixpath.dirname(path)} is in use by another process")
        held = Held(self, path)
        self.disk.locks[path] = held
        return held

    async def compute(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self.run(fn, *args)

    async def run_read(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await self.run(fn, *args)

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn` somewhere between the call and its timed completion, as a thread of a small pool would."""
        self.process.check_alive()
        disk, process = self.disk, self.process
        loop = disk.sim.loop
        future = loop.create_future()
        outcome: list[Any] = []

        def begin() -> None:
            chance = disk.random
            low, high = STALL_S if chance.random() < STALL_CHANCE else CALL_S
            taken = chance.uniform(low, high) * disk.slowness
            loop.kernel.after(taken * chance.random(), execute)
            loop.kernel.after(taken, finish)

        def execute() -> None:
            if process.alive:
                context = process.context.copy()
                try:
                    outcome.append((True, context.run(fn, *args)))
                except BaseException as error:
                    outcome.append((False, error))

        def finish() -> None:
            if not process.alive:
                return
            disk.busy -= 1
            if disk.waiting:
                disk.busy += 1
                disk.waiting.pop(0)[1]()
            disk.sim.trace.add("complete", process.name)
            if not future.done():
                ok, value = outcome[0]
                if ok:
                    future.set_result(value)
                else:
                    future.set_exception(value)

        if disk.busy < POOL_THREADS:
            disk.busy += 1
            begin()
        else:
            disk.waiting.append((process, begin))
        return await future

    def close(self) -> None:
        pass
