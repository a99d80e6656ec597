"""The options of tables, all kinds of which have the same, and the `TableSpec` that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from ..engine.codecs import CodecArg
from ..engine.described import KEY_TYPE, name_of
from ..engine.plain_functions import check_functions, refuse_async
from ..engine.record_rows import RecordCodec
from ..engine.serialization import Serializers
from ..engine.serialized_rows import SerializedCodec
from ..engine.table_codec import TableCodec
from ..engine.tables import RowCodec, TableSpec
from ..errors import AppError
from ..near import or_near
from .schema import Schema
from .settings import STORES

Recovered = Callable[[], Any]


class TableOptions(TypedDict, total=False):
    """store: `memory://` or `rocksdb://`, by default the app's setting. help: what the table is, for people.
    partitions: of its changelog; as many as what its agents read. extra_topic_configs: of the changelog.

    key_type, value_type: classes whose instances rows may have, beside what tables without types take; rows come back
    as they were. key_serializer, value_serializer: codecs that write rows in place of this package's lossless JSON;
    what comes back is then what the codec and the type make of it. schema: types and serializers in one.

    on_window_close: called with (key, (start, end)), in seconds, and the value, of each window that closes; it may be
    async. on_recover: called, without arguments, when the worker has the table's rows after a rebalance; it may be
    async. version: of what rows are, from 1; migrate: version -> what makes rows of it those of the next one, as
    `table.migration` does.
    """

    store: str | None
    help: str
    partitions: int | None
    extra_topic_configs: Mapping[str, Any] | None
    key_type: Any
    value_type: Any
    key_serializer: CodecArg
    value_serializer: CodecArg
    schema: Schema | None
    on_window_close: Callable[[Any, Any], Any] | None
    on_recover: Recovered | None
    recover_callbacks: Iterable[Recovered] | None
    version: int
    migrate: Mapping[int, Callable[[Any, Any], Any]] | None
    # Of Faust, without effect, and those that cannot be had: see below.
    options: Any
    recovery_buffer_size: int
    standby_buffer_size: int | None
    synchronize_all_active_partitions: bool
    use_partitioner: bool
    changelog_topic: Any
    on_changelog_event: Any


REFUSED = {
    "use_partitioner": "a row is in the partition of the events that it comes from; group_by() brings events there, "
    "and GlobalTable always uses the partitioner",
    "changelog_topic": "a changelog is named <app>-<table>-changelog; extra_topic_configs= has its options",
    "on_changelog_event": "what a row gets from its changelog is what was written",
}
LOSSLESS = (None, "json")  # serializers that stand for this package's own


def spec_of(
    name: str, default: Callable[[], Any] | None, store: str, options: TableOptions, *, of_sets: bool = False
) -> TableSpec:
    """store: of the app. of_sets: the values are sets of what value_type says. Raises AppError for options that are not
    known, or cannot be had."""
    check(name, options)
    if default is not None and not callable(default):
        raise AppError(f"table {name}: default={default!r} is no function: write default=lambda: {default!r}")
    check_functions(f"on_window_close= of table {name}", options.get("on_window_close"))
    refuse_async(f"default= of table {name}", default)
    version = options.get("version", 1)
    if not isinstance(version, int) or version < 1:
        raise AppError(f"table {name}: version={version!r}, but must be a whole number from 1")
    configs = {each: str(value) for each, value in (options.get("extra_topic_configs") or {}).items()}
    return TableSpec(
        name,
        default,
        _store(name, options.get("store") or store),
        options.get("help", ""),
        on_window_close=options.get("on_window_close"),
        partitions=options.get("partitions"),
        changelog_options=configs,
        codec=codec_of(name, options, of_sets),
        key_type=options.get("key_type") or getattr(options.get("schema"), "key_type", None),
        version=version,
        made_by=_written_by(options),
        value_type=name_of(options.get("value_type") or getattr(options.get("schema"), "value_type", None)),
    )


def _written_by(options: TableOptions) -> dict[str, str]:
    """What rows cannot be read without. A value's type is not in it: one that has got a field reads rows without it."""
    given = options.get("schema") or Schema()
    key_type = options.get("key_type") or given.key_type
    said = {
        KEY_TYPE: None if key_type is None else getattr(key_type, "__name__", str(key_type)),
        "key_serializer": options.get("key_serializer") or given.key_serializer,
        "value_serializer": options.get("value_serializer") or given.value_serializer,
    }
    return {name: str(each) for name, each in said.items() if each not in LOSSLESS}


def check(name: str, options: Mapping[str, Any], but: frozenset[str] = frozenset()) -> None:
    """but: those that are had all the same."""
    for option, value in options.items():
        if option in REFUSED and option not in but and value:
            raise AppError(f"table {name}: {option}= is not possible: {REFUSED[option]}")
        if option not in TableOptions.__annotations__:
            near = or_near(option, [*TableOptions.__annotations__, "default"], "=")
            raise AppError(f"table {name}: there is no option {option}={near}")


def _store(table: str, said: str) -> str:
    known = STORES.get(said.partition("://")[0])
    if known is None:
        raise AppError(f"table {table}: store '{said}' is not known; there are 'memory://' and 'rocksdb://'")
    return known


def codec_of(table: str, options: TableOptions, of_sets: bool) -> RowCodec:
    given = options.get("schema") or Schema()
    if given.is_own:
        raise AppError(
            f"table {table}: {type(given).__name__} reads and writes messages by methods of its own, and rows are no "
            "messages: give key_type=, value_type= and serializers"
        )
    key_type = options.get("key_type") or given.key_type
    value_type = options.get("value_type") or given.value_type
    key_serializer = options.get("key_serializer") or given.key_serializer
    value_serializer = options.get("value_serializer") or given.value_serializer
    if of_sets and value_type is not None:
        value_type = list[value_type]  # type: ignore[valid-type]  # a type that is a value
    if key_type is None and value_type is None and key_serializer in LOSSLESS and value_serializer in LOSSLESS:
        return RecordCodec()
    typed = TableCodec(key_type, value_type)
    if key_serializer in LOSSLESS and value_serializer in LOSSLESS:
        return typed
    coders = Serializers()
    return SerializedCodec(
        typed,
        None if key_serializer in LOSSLESS else coders.key_coder(key_type, key_serializer),
        None if value_serializer in LOSSLESS else coders.value_coder(value_type, value_serializer),
    )


def recovered(options: TableOptions) -> list[Recovered]:
    first = options.get("on_recover")
    return [*([] if first is None else [first]), *(options.get("recover_callbacks") or ())]
