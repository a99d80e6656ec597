"""The project's own lint: which way imports may point, and what no room but the named ones may touch.

Reads the syntax trees of all product modules; imports nothing of them. `python -m tests.architecture` prints a
line for each breach, `path:line: rule: what`, and exits 1 when there is any. A line that must break a rule says why:
`# allowed: <reason>`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "isthmus protocol client core_broker mirror streams connectors console deploy testing examples pyspark_isthmus"
).split()
WAIVER = "# allowed: "

# Which modules a module may import, by the longest prefix of its name; its own prefix always. The package's root
# and the modules in it are open to all. A name that is not here may import nothing of the project.
_BROKER = "isthmus.core_broker"
_OUTSIDE = ("isthmus.client", "isthmus.protocol")
_DISK = f"{_BROKER}.storage.disk"
_LOG = (f"{_BROKER}.storage.log", _DISK, "isthmus.protocol")
_CONFIG = (
    f"{_BROKER}.storage",
    f"{_BROKER}.option",
    f"{_BROKER}.kafka_only",
    f"{_BROKER}.membership",
    "isthmus.protocol",
)
_IMAGE = (f"{_BROKER}.cluster.image", f"{_BROKER}.cluster.partition_image", f"{_BROKER}.cluster.partition_index")
_CLUSTER = (
    *_IMAGE,
    f"{_BROKER}.config",
    f"{_BROKER}.group_options",
    f"{_BROKER}.pauses",
    f"{_BROKER}.purgatory",
    "isthmus.client.connection",
    "isthmus.client.errors",
    *_CONFIG,
)
_CHANNEL = f"{_BROKER}.controller_channel"
_PEERS = f"{_BROKER}.broker_channels"
_CREATION = f"{_BROKER}.auto_creation"
_COORDINATORS = (f"{_BROKER}.cluster", f"{_BROKER}.replication", _CHANNEL, _CREATION, _PEERS, *_CLUSTER)
_SERVER = (
    f"{_BROKER}.coordinators",
    f"{_BROKER}.described",
    f"{_BROKER}.loggers",
    *_COORDINATORS,
)
_PEOPLE = ("isthmus.connectors", "isthmus.streams", "isthmus.mirror", *_OUTSIDE)
ARROWS: dict[str, tuple[str, ...]] = {
    "isthmus": (),
    "isthmus.runtime": ("isthmus._clock",),
    "isthmus.readiness": (),
    "isthmus.protocol": (),
    "isthmus.client": ("isthmus.protocol",),
    "isthmus.mirror": _OUTSIDE,
    "isthmus.streams": _OUTSIDE,
    "isthmus.connectors": _OUTSIDE,
    "isthmus.examples": ("isthmus.deploy", "isthmus.testing", *_PEOPLE),
    "isthmus.console": ("isthmus.deploy", "isthmus.examples", *_PEOPLE),
    "isthmus.deploy": _PEOPLE,
    "isthmus.testing": ("isthmus.deploy", *_PEOPLE),
    "pyspark_isthmus": ("isthmus.connectors",),
    _BROKER: (),
    f"{_BROKER}.purgatory": (),
    f"{_BROKER}.loading": (),
    f"{_BROKER}.pauses": (),
    _CHANNEL: (f"{_BROKER}.pauses", *_OUTSIDE),
    _PEERS: _OUTSIDE,
    _CREATION: (f"{_BROKER}.cluster", _CHANNEL, *_CLUSTER),
    f"{_BROKER}.storage": (f"{_BROKER}.storage.upkeep", f"{_BROKER}.storage.startup", *_LOG),
    f"{_BROKER}.storage.upkeep": (f"{_BROKER}.pauses", *_LOG),
    f"{_BROKER}.storage.startup": _LOG,
    f"{_BROKER}.storage.check": (f"{_BROKER}.storage.startup", *_LOG),
    f"{_BROKER}.storage.log": (_DISK, "isthmus.protocol"),
    _DISK: ("isthmus.protocol",),
    f"{_BROKER}.option": ("isthmus.protocol",),
    f"{_BROKER}.kafka_only": (f"{_BROKER}.option", "isthmus.protocol"),
    f"{_BROKER}.membership": (f"{_BROKER}.option", "isthmus.protocol"),
    f"{_BROKER}.properties": (f"{_BROKER}.option", "isthmus.protocol"),
    f"{_BROKER}.loggers": ("isthmus.protocol",),
    f"{_BROKER}.config": _CONFIG,
    f"{_BROKER}.group_options": (f"{_BROKER}.config", *_CONFIG),
    f"{_BROKER}.described": (f"{_BROKER}.config", f"{_BROKER}.group_options", *_CONFIG),
    f"{_BROKER}.cluster": (f"{_BROKER}.cluster.raft", *_CLUSTER),
    f"{_BROKER}.cluster.image": (*_IMAGE, f"{_BROKER}.cluster.features", "isthmus.protocol"),
    f"{_BROKER}.cluster.raft": ("isthmus.protocol",),
    f"{_BROKER}.replication": (_CHANNEL, *_CLUSTER),
    f"{_BROKER}.coordinators": _COORDINATORS,
    f"{_BROKER}.server": _SERVER,
    f"{_BROKER}.lifecycle": (_CHANNEL, *_CLUSTER),
    f"{_BROKER}.checking": (f"{_BROKER}.replication", f"{_BROKER}.cluster", f"{_BROKER}.config", *_CONFIG),
    f"{_BROKER}.moving": (f"{_BROKER}.cluster", f"{_BROKER}.config", *_CONFIG),
    f"{_BROKER}.metrics": (f"{_BROKER}.server", *_SERVER),
    f"{_BROKER}.active_controller": (f"{_BROKER}.server.listener", f"{_BROKER}.membership", *_COORDINATORS),
    f"{_BROKER}.quorum_member": (f"{_BROKER}.server.listener", f"{_BROKER}.membership", *_COORDINATORS),
    f"{_BROKER}.start_errors": (f"{_BROKER}.server.listener", f"{_BROKER}.membership", *_COORDINATORS),
    f"{_BROKER}.broker": (
        f"{_BROKER}.active_controller",
        f"{_BROKER}.quorum_member",
        f"{_BROKER}.start_errors",
        f"{_BROKER}.lifecycle",
        f"{_BROKER}.loading",
        f"{_BROKER}.server",
        f"{_BROKER}.metrics",
        *_SERVER,
    ),
    f"{_BROKER}.check_options": (f"{_BROKER}.server", *_SERVER),
    f"{_BROKER}.__main__": (
        *(
            f"{_BROKER}.{room}"
            for room in ("broker", "start_errors", "checking", "moving", "properties", "check_options")
        ),
        *_SERVER,
    ),
    f"{_BROKER}.health": ("isthmus.protocol",),
}
OPEN_TO_ALL = ("isthmus", "isthmus.compiled", "isthmus.readiness", "isthmus.runtime", "isthmus.same_host")


@dataclass(frozen=True)
class Ban:
    """Names (and all below them) that only modules under the `free` prefixes may use; `rooms` limits where it holds."""

    rule: str
    names: tuple[str, ...]
    free: tuple[str, ...]
    rooms: tuple[str, ...] = ("isthmus", "pyspark_isthmus")


_EDGES = (
    "isthmus.console",
    "isthmus.deploy",
    "isthmus.examples",
    "isthmus.testing",
    "isthmus.streams.command",
    "__main__",
)  # what a person starts; `__main__`: the file of any room
_FILES = f"{_BROKER}.storage.disk.real_files"
_DATA_FILE = f"{_BROKER}.storage.disk._data_file"
BANS = (
    Ban(
        "clocks and chance come from isthmus.runtime",
        (
            "time random secrets uuid.uuid1 uuid.uuid4 os.urandom os.getrandom datetime.datetime.now "
            "datetime.datetime.utcnow datetime.datetime.today datetime.date.today"
        ).split(),
        ("isthmus.runtime", "isthmus._clock", *_EDGES),
    ),
    Ban(
        "no threads or executors but behind real_files.py",
        "threading _thread multiprocessing concurrent asyncio.to_thread queue".split(),
        (_FILES, *_EDGES),
    ),
    Ban(
        "no subprocess or signal below the command line",
        "subprocess signal os.fork os.system os.kill os.execv os.posix_spawn asyncio.create_subprocess_exec "
        "asyncio.create_subprocess_shell".split(),
        _EDGES,
    ),
    Ban(
        "protocols and transports, not asyncio streams",
        "asyncio.open_connection asyncio.start_server asyncio.StreamReader asyncio.StreamWriter".split(),
        _EDGES,
        ("isthmus.client", _BROKER, "isthmus.mirror", "isthmus.streams", "isthmus.connectors"),
    ),
    Ban(
        "a broker's files are touched in storage/disk/real_files.py and _data_file.py only",
        (
            "open io.open io.FileIO pathlib.Path shutil tempfile mmap glob os.open os.fdopen os.read os.write os.pread "
            "os.pwrite os.preadv os.pwritev os.readv os.writev os.fsync os.fdatasync os.rename os.replace os.unlink "
            "os.remove os.rmdir os.removedirs os.listdir os.scandir os.walk os.stat os.fstat os.mkdir os.makedirs "
            "os.truncate os.ftruncate os.link os.symlink os.path.exists os.path.isfile os.path.isdir os.path.getsize "
            "os.path.getmtime fcntl"
        ).split(),
        (_FILES, _DATA_FILE, *_EDGES),
        (_BROKER,),
    ),
)  # fmt: skip
TYPES_ONLY = ("random.Random",)  # may be named in annotations, never called
METHODS = {  # banned whatever the object is
    "run_in_executor": "no threads or executors but behind real_files.py",
    "set_default_executor": "no threads or executors but behind real_files.py",
    "sock_recv": "protocols and transports, not loop.sock_*",
    "sock_recv_into": "protocols and transports, not loop.sock_*",
    "sock_sendall": "protocols and transports, not loop.sock_*",
    "sock_sendfile": "protocols and transports, not loop.sock_*",
    "sock_connect": "protocols and transports, not loop.sock_*",
    "sock_accept": "protocols and transports, not loop.sock_*",
}
CIRCLE_RULE = "modules import each other in a circle"
SET_RULE = "no order out of a set: sort it, or use a dict"
STATE_RULE = "no module-level mutable state"
ORDER_FREE = frozenset("any all sum min max len set frozenset sorted".split())


@dataclass(frozen=True, order=True)
class Breach:
    path: str
    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.what}"


def is_under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def module_name(path: Path) -> str:
    """Import name of a file given by its path from the checkout: `protocol/records.py` is isthmus.protocol.records."""
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts if parts[0] in ("isthmus", "pyspark_isthmus") else ["isthmus", *parts])


def product_modules(root: Path = ROOT) -> dict[str, Path]:
    """Every product module by its import name. The links inside isthmus/ are left out: rooms are found as folders."""
    found = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            inside = path.relative_to(root)
            if not any((root / Path(*inside.parts[:i])).is_symlink() for i in range(1, len(inside.parts))):
                found[module_name(inside)] = path
    return found


class Module:
    """One file: its tree, and what its names stand for."""

    def __init__(self, name: str, path: str, source: str, known: frozenset[str], is_package: bool = False):
        self.name, self.path, self.known = name, path, known
        self.package = name if is_package else name.rpartition(".")[0]
        self.tree = ast.parse(source, path)
        self.waived = {number for number, line in enumerate(source.splitlines(), 1) if WAIVER in line}
        self.meaning: dict[str, str] = {}  # local name -> dotted name of what was imported under it
        self.imports: list[tuple[int, str]] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.imports.append((node.lineno, alias.name))
                    if alias.asname:
                        self.meaning[alias.asname] = alias.name
                    else:
                        first = alias.name.partition(".")[0]
                        self.meaning[first] = first
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                for alias in node.names:
                    full = f"{base}.{alias.name}"
                    self.imports.append((node.lineno, full if not _ours(base) or full in known else base))
                    self.meaning[alias.asname or alias.name] = full

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def dotted(self, node: ast.expr) -> str | None:
        """What an expression such as `t.monotonic` names in full, given the imports of the file."""
        if isinstance(node, ast.Name):
            return self.meaning.get(node.id, "open" if node.id == "open" else None)
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else None
        return None

    def breaches(self) -> Iterator[Breach]:
        for line, rule, what in (*self._arrows(), *self._bans(), *self._sets(), *self._state()):
            if line not in self.waived:
                yield Breach(self.path, line, rule, what)

    def _arrows(self) -> Iterator[tuple[int, str, str]]:
        room = _room(self.name)
        for line, target in self.imports:
            if target.partition(".")[0] in ROOMS and not _ours(target):
                yield line, "imports", f"{target} is no import name: it is isthmus.{target}"
            elif _ours(target) and target not in OPEN_TO_ALL:
                is_own = _room(target) == room != "isthmus"
                if not is_own and not any(is_under(target, prefix) for prefix in ARROWS[room]):
                    yield line, "imports", f"{self.name} may not import {target}"

    def _bans(self) -> Iterator[tuple[int, str, str]]:
        called = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        uses = [(line, name, False) for line, name in self.imports]
        inner = set()  # the `os.path` of `os.path.exists`, already part of a longer name
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner and (name := self.dotted(node)):
                uses.append((node.lineno, name, id(node) in called))
            if isinstance(node, ast.Attribute):
                inner.add(id(node.value))
                if node.attr in METHODS and not self._free((_FILES, *_EDGES)):
                    yield node.lineno, METHODS[node.attr], f".{node.attr}"
        for ban in BANS:
            if self._free(ban.free) or not any(is_under(self.name, room) for room in ban.rooms):
                continue
            said = set()
            for line, name, is_call in uses:
                banned = any(is_under(name, each) for each in ban.names)
                typed = name in TYPES_ONLY and not is_call
                module_only = name in ("random",) and not is_call  # `import random` for its type
                if banned and not typed and not module_only and (line, name) not in said:
                    said.add((line, name))
                    yield line, ban.rule, name

    def _free(self, prefixes: tuple[str, ...]) -> bool:
        return any(is_under(self.name, each) or each == self.name.rpartition(".")[2] for each in prefixes)

    def _sets(self) -> Iterator[tuple[int, str, str]]:
        scopes: list[ast.AST] = [self.tree]
        scopes += [n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        fields = _set_names(self.tree, attributes=True)
        said = set()
        for scope in scopes:
            known = fields | _set_names(scope, attributes=False)
            for node in _within(scope):
                for line, what in _iterations(node, known):
                    if (line, what) not in said:
                        said.add((line, what))
                        yield line, SET_RULE, what

    def _state(self) -> Iterator[tuple[int, str, str]]:
        if self._free(_EDGES):
            return
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Global):
                yield node.lineno, STATE_RULE, f"global {', '.join(node.names)}"
        for statement in self.tree.body:
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            if _is_empty_container(value):
                yield statement.lineno, STATE_RULE, ast.unparse(statement)


def _room(name: str) -> str:
    """The longest prefix in ARROWS that a name of ours is under."""
    return max((prefix for prefix in ARROWS if is_under(name, prefix)), key=len)


def _ours(name: str) -> bool:
    return is_under(name, "isthmus") or is_under(name, "pyspark_isthmus")


def _is_empty_container(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict):
        return not value.keys
    if isinstance(value, ast.List):
        return not value.elts
    if isinstance(value, ast.Call) and not value.args and isinstance(value.func, ast.Name | ast.Attribute):
        name = value.func.id if isinstance(value.func, ast.Name) else value.func.attr
        return name in ("dict", "list", "set", "defaultdict", "deque", "OrderedDict", "Counter", "WeakKeyDictionary")
    return False


# --- Sets -----------------------------------------------------------------------------------------------------------


def _within(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a scope but those of the functions inside it."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _set_names(scope: ast.AST, attributes: bool) -> frozenset[str]:
    """Names that hold sets: annotated as one, or only ever assigned one. `attributes`: those of self, else locals."""
    sets, others = set(), set()
    nodes = ast.walk(scope) if attributes else _within(scope)
    fields = {id(each) for node in ast.walk(scope) if isinstance(node, ast.ClassDef) for each in node.body}
    for node in nodes:
        if isinstance(node, ast.AnnAssign):
            targets, is_set = [node.target], _is_set_type(node.annotation)
            if attributes and isinstance(node.target, ast.Name) and id(node) in fields:
                targets = [ast.Attribute(ast.Name("self"), node.target.id)]
        elif isinstance(node, ast.Assign):
            targets, is_set = node.targets, _is_set(node.value, frozenset())
        elif isinstance(node, ast.arg) and node.annotation is not None and not attributes:
            targets, is_set = [ast.Name(node.arg)], _is_set_type(node.annotation)
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Attribute if attributes else ast.Name):
                (sets if is_set else others).add(ast.unparse(target))
    return frozenset(sets - others)


def _is_set_type(annotation: ast.expr) -> bool:
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return isinstance(base, ast.Name) and base.id in ("set", "frozenset", "Set", "AbstractSet")


def _is_set(node: ast.expr, known: frozenset[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left, known) or _is_set(right, known)
        case ast.Name() | ast.Attribute():
            return ast.unparse(node) in known
    return False


def _iterations(node: ast.AST, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Where `node` itself gives out the elements of a set in their order."""
    if isinstance(node, ast.For | ast.AsyncFor) and _is_set(node.iter, known):
        yield node.lineno, f"for … in {ast.unparse(node.iter)}"
    elif isinstance(node, ast.ListComp | ast.DictComp):
        for generator in node.generators:
            if _is_set(generator.iter, known):
                yield node.lineno, ast.unparse(node)
    elif isinstance(node, ast.Starred) and _is_set(node.value, known):
        yield node.lineno, ast.unparse(node)
    elif isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        gives_order = name in ("list", "tuple", "iter", "enumerate", "zip", "map") or attribute in ("join", "extend")
        for argument in node.args:
            if gives_order and _is_set(argument, known):
                yield node.lineno, ast.unparse(node)
            if isinstance(argument, ast.GeneratorExp) and name not in ORDER_FREE:
                for generator in argument.generators:
                    if _is_set(generator.iter, known):
                        yield node.lineno, ast.unparse(node)


# --- Circles --------------------------------------------------------------------------------------------------------


def circles(modules: dict[str, Module]) -> Iterator[Breach]:
    """An import of each circle that modules make. Imports for types alone and those inside functions count, too."""
    graph = {
        name: {target: line for line, target in reversed(module.imports) if line not in module.waived}
        for name, module in modules.items()
    }
    for group in _groups_of_circles({name: [t for t in graph[name] if t in modules and t != name] for name in graph}):
        name = group[0]
        target = next(each for each in group if each in graph[name])
        what = f"{name} imports {target}, in a circle of {len(group)}: {', '.join(group)}"
        yield Breach(modules[name].path, graph[name][target], CIRCLE_RULE, what)


def _groups_of_circles(graph: dict[str, list[str]]) -> list[list[str]]:
    """The names that reach each other, in groups, each sorted: Tarjan's strongly connected components of more than
    one."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []
    for root in graph:
        walk = [(root, iter(graph[root]))] if root not in number else []
        if walk:
            number[root] = lowest[root] = len(number)
            path.append(root)
        while walk:
            name, targets = walk[-1]
            for target in targets:
                if target not in number:
                    number[target] = lowest[target] = len(number)
                    path.append(target)
                    walk.append((target, iter(graph[target])))
                    break
                if target in path:
                    lowest[name] = min(lowest[name], number[target])
            else:
                walk.pop()
                if walk:
                    lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[name])
                if lowest[name] == number[name]:
                    at = path.index(name)
                    if len(path) - at > 1:
                        found.append(sorted(path[at:]))
                    del path[at:]
    return found


# --- The whole ------------------------------------------------------------------------------------------------------


def check(sources: dict[str, tuple[str, str, bool]]) -> list[Breach]:
    """All breaches in modules given as name -> (path, source, is a package)."""
    known = frozenset(sources)
    found: list[Breach] = []
    modules = {
        name: Module(name, path, source, known, is_package) for name, (path, source, is_package) in sources.items()
    }
    for module in modules.values():
        found += module.breaches()
    found += circles(modules)
    return sorted(set(found))


def check_project(root: Path = ROOT) -> list[Breach]:
    modules = product_modules(root)
    return check(
        {
            name: (str(path.relative_to(root)), path.read_text(), path.name == "__init__.py")
            for name, path in modules.items()
        }
    )


def main() -> int:
    breaches = check_project()
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
