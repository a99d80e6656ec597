"""`python -m tests.protocol.fuzz requests|records`: damaged bytes for everything that decodes what others send.

It runs as a process of its own, so that the system itself holds the bounds: an address space that is little larger than
at the start, and a watchdog that ends the process, with its stack, when one input takes too long. Bytes are an error of
the protocol or a value, nothing else; after each hundredth the memory that stays is looked at. The seed is printed, and
makes the same run again. `--control` breaks a decoder, by which test_fuzz.py sees that each bound holds.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from isthmus.protocol import compaction
from isthmus.protocol._walk import BatchScan
from isthmus.protocol.compression import CompressionError
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import DecodeError
from isthmus.protocol.messages import APIS, consumer_protocol
from isthmus.protocol.records import (
    CorruptBatch,
    build_batch,
    decode_batch,
    decode_lists,
    decode_lists_with_headers,
    iter_columns,
    iter_records,
    plain_records,
    read_header,
    validate_batch,
    walk,
    with_append_time,
    with_codec,
)

MIB = 1 << 20
ROOM_BYTES = (
    384 * MIB
)  # address space above that of the start; a batch may ask for DECOMPRESSED_MAX, and some of it twice
DECOMPRESSED_MAX = 4 * MIB
STAYS_BYTES = 48 * MIB  # resident, above that of the first tenth
HANG_S = 20.0
LOOK_EVERY = 100
HEADER_BYTES = 61
CRC_AT = 17  # it covers what comes after its four bytes
STAMP_MS = 1_700_000_000_000
INDEX_INTERVAL_BYTES = 100
PRODUCER_BATCHES_KEPT = 5
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TEXTS = ("", "t", "flights", "é" * 40, "x" * 300)
INTEGERS = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}
NASTY = (b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x80" * 6, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0" * 8)

Decode = Callable[[bytes], object]


# --- What is damaged ------------------------------------------------------------------------------------------------


def message(cls: Any, version: int, chance: random.Random) -> Any:
    """With something in each field that the version carries."""
    made = cls()
    for field in cls.FIELDS:
        if field.versions.has(version):
            if field.nullable.has(version) and chance.random() < 0.1:
                value = None
            elif field.kind == "array":
                value = [_value(field.of or field, version, chance) for _ in range(chance.choice((0, 1, 2)))]
            else:
                value = _value(field, version, chance)
            setattr(made, field.name, value)
    return made


def _value(field: Any, version: int, chance: random.Random) -> Any:
    if field.struct is not None:
        return message(field.struct, version, chance)
    match field.kind:
        case "bool":
            return chance.random() < 0.5
        case "string":
            return chance.choice(TEXTS)
        case "uuid":
            return chance.randbytes(16)
        case "float64":
            return chance.random()
        case "bytes":
            return chance.randbytes(chance.choice((0, 3, 200)))
        case "records":
            return batch(chance)
    bits = INTEGERS[field.kind] * 8
    number = chance.choice((0, 1, chance.getrandbits(bits)))
    return number if field.kind.startswith("u") or number < 1 << (bits - 1) else number - (1 << bits)


def batch(chance: random.Random) -> bytes:
    rows = [
        (
            1000 + n,
            None if n % 5 == 0 else b"k%d" % (n % 3),
            None if n % 7 == 0 else b"v" * chance.randint(0, 90),
            (("h", b"x"), ("n", None)) if n % 4 == 0 else (),
        )
        for n in range(chance.randint(1, 30))
    ]
    return build_batch(rows, chance.choice(CODECS))


def damaged(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(out):
                out[at] = chance.choice((0, 1, 2, 127, 128, 254, 255))
            case 2:
                out[at:at] = chance.choice(NASTY)
            case 3:
                wrong = chance.choice(NASTY)
                out[at : at + len(wrong)] = wrong
            case 4:
                del out[at : at + chance.choice((1, 4, 30, len(out)))]
            case 5:
                out[at:at] = out[at : at + 40] * chance.choice((1, 2, 100))
    return bytes(out)


# --- What it is given to --------------------------------------------------------------------------------------------


def requests(chance: random.Random) -> Iterator[tuple[str, bytes, Decode]]:
    """Each version of each request by turns, with its header; and what consumers tell each other in some of them."""
    targets: list[tuple[str, Any, int, Decode]] = [
        (f"{api.name} v{version}", api.request, version, _request(api, version))
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
    ]
    targets += [
        (
            f"{codec.name} v{version}",
            codec,
            version,
            lambda data, codec=codec, version=version: codec.decode(data, 0, version),
        )  # type: ignore[misc]
        for codec in consumer_protocol.CODECS
        for version in range(codec.versions.low, codec.versions.high + 1)
    ]
    while True:
        chance.shuffle(targets)
        for name, codec, version, decode in targets:
            whole = codec.encode_bytes(message(codec.struct, version, chance), version)
            for _ in range(4):
                yield name, damaged(whole, chance), decode


def _request(api: Any, version: int) -> Decode:
    head = struct.pack(">hhih", api.key, version, 7, 1) + b"c" + b"\0" * (api.request_header_version(version) == 2)

    def decode(body: bytes) -> object:
        return api.decode_request(memoryview(head + body), len(head), version)

    return decode


def records(chance: random.Random) -> Iterator[tuple[str, bytes, Decode]]:
    """Everything that looks into a batch, at batches whose CRC is right, or not."""
    while True:
        whole = batch(chance)
        for _ in range(8):
            data = damaged(whole, chance)
            if chance.random() < 0.8:
                data = _made_right(data)
            for name, decode in RECORD_PARSERS.items():
                yield name, data, decode


def _made_right(data: bytes) -> bytes:
    """With the length and the CRC that it ought to have."""
    out = bytearray(data.ljust(HEADER_BYTES, b"\0"))
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, CRC_AT, crc32c(memoryview(out)[CRC_AT + 4 :]))
    return bytes(out)


def _compacted(data: bytes) -> object:
    view = memoryview(data)
    header = read_header(view, 0)
    if header.size_bytes > len(view):
        raise CorruptBatch("the cleaner takes whole batches")
    offsets = compaction.new_offset_map(1 << 16, 0.9, 1000, random.Random(0))
    compaction.map_batch(view, 0, header, offsets)
    return compaction.filter_batch(view, 0, header, offsets, 0, 0)


def _plain(data: bytes) -> object:
    view = memoryview(data)
    source, start, stop = plain_records(view, 0, read_header(view, 0), True, DECOMPRESSED_MAX)
    assert 0 <= start <= stop <= len(source), "records beyond what there is"
    return source


def _stamped(data: bytes) -> object:
    header = with_append_time(data, 0, STAMP_MS)
    told = read_header(header)
    assert told.is_log_append_time and told.max_timestamp == STAMP_MS, "the broker's time is not told"
    assert len(header) == HEADER_BYTES and header[:CRC_AT] == data[:CRC_AT], "what the CRC does not cover has changed"
    assert told.size_bytes > len(data) or _has_its_crc(header + data[HEADER_BYTES:]), "a CRC of something else"
    return header


def _scanned(data: bytes) -> object:
    """As a start after a crash reads a segment: first a piece of it, then as much as the scan wants."""
    scan = BatchScan(0, INDEX_INTERVAL_BYTES, PRODUCER_BATCHES_KEPT)
    given = len(data) // 2
    while not scan.stopped and scan.end < len(data):
        begun = scan.end
        scan.take(data[begun : begun + given], len(data) - begun)
        assert begun <= scan.end <= begun + given, "more is valid than was given"
        if scan.end == begun and given >= len(data):
            break
        given = len(data)
    assert not scan.end or _has_its_crc(data), "valid, and its CRC is another"
    return scan


def _has_its_crc(data: bytes) -> bool:
    """Whether the batch that the bytes begin with is whole, with the CRC that it claims."""
    size, crc = struct.unpack_from(">i", data, 8)[0] + 12, struct.unpack_from(">I", data, CRC_AT)[0]
    return size <= len(data) and crc32c(memoryview(data)[CRC_AT + 4 : size]) == crc


RECORD_PARSERS: dict[str, Decode] = {
    "walk": lambda data: list(walk(data)),
    "decode_batch": lambda data: decode_batch(data, max_bytes=DECOMPRESSED_MAX),
    "iter_records": lambda data: sum(1 for _ in iter_records(data, max_bytes=DECOMPRESSED_MAX)),
    "decode_lists": lambda data: decode_lists(data, max_bytes=DECOMPRESSED_MAX),
    "decode_lists_with_headers": lambda data: decode_lists_with_headers(data, max_bytes=DECOMPRESSED_MAX),
    "iter_columns": lambda data: sum(each.count for each in iter_columns(data, max_bytes=DECOMPRESSED_MAX)),
    "validate_batch": lambda data: validate_batch(data, max_bytes=DECOMPRESSED_MAX),
    "with_codec": lambda data: with_codec(data, 0, "lz4", max_bytes=DECOMPRESSED_MAX),
    "compaction": _compacted,
    "plain_records": _plain,
    "with_append_time": _stamped,
    "recovery": _scanned,
}
INPUTS = {"requests": requests, "records": records}
EXPECTED = (DecodeError, CorruptBatch, CompressionError)


# --- Controls: one wrong decoder each -------------------------------------------------------------------------------

_KEPT: list[bytes] = []


def _believes_counts(data: bytes) -> object:
    """Allocates as many elements as the first four bytes claim."""
    return [None] * (int.from_bytes(data[:4].rjust(4, b"\x7f"), "big") | 1 << 30)


def _keeps_all(data: bytes) -> object:
    _KEPT.append(bytes(1 << 16))
    return None


def _never_ends(data: bytes) -> object:
    while True:
        pass


def _fails_otherwise(data: bytes) -> object:
    return data[len(data)]


CONTROLS: dict[str, Decode] = {
    "believes-counts": _believes_counts,
    "fails-otherwise": _fails_otherwise,
    "keeps-all": _keeps_all,
    "never-ends": _never_ends,
}


# --------------------------------------------------------------------------------------------------------------------


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def run(kind: str, seconds: float, seed: int, control: str | None, hang_s: float) -> str:
    """What was done, in a line. Raises AssertionError and whatever a decoder should not have raised."""
    chance = random.Random(seed)
    inputs = INPUTS[kind](chance)
    next(inputs)
    limit = address_space_bytes() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    begun = time.monotonic()
    count, refused, largest, names = 0, 0, 0, set()
    settled: int | None = None
    stays = 0
    for name, data, decode in inputs:
        if count % LOOK_EVERY == 0:
            faulthandler.dump_traceback_later(hang_s, exit=True)
            elapsed = time.monotonic() - begun
            if elapsed > seconds / 10:
                stays = max(stays, resident_bytes() - (settled or resident_bytes()))
                settled = settled or resident_bytes()
                if stays > STAYS_BYTES:
                    gc.collect()
                    left = resident_bytes() - settled
                    assert left <= STAYS_BYTES, f"{left / MIB:.0f} MiB more after {count} inputs"
                    stays = left
            if elapsed > seconds:
                break
        try:
            (CONTROLS[control] if control and settled else decode)(data)
        except EXPECTED:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"{name}: {type(error).__name__} for {data[:2000].hex()}") from error
        count += 1
        names.add(name)
        largest = max(largest, len(data))
    faulthandler.cancel_dump_traceback_later()
    return (
        f"{kind}: {count} inputs of {len(names)} kinds up to {largest} bytes, {refused} refused, "
        f"memory +{stays / MIB:.1f} MiB, seed {seed}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol.fuzz", description=__doc__)
    parser.add_argument("kind", choices=sorted(INPUTS))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="default: another one each time")
    parser.add_argument("--control", choices=sorted(CONTROLS))
    parser.add_argument("--hang-seconds", type=float, default=HANG_S)
    args = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    print(run(args.kind, args.seconds, seed, args.control, args.hang_seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
