"""Java's hashes, lengths and orders, where a client can tell which language a coordinator is in."""

from __future__ import annotations

from collections.abc import Iterable

SLOTS = 16  # of a HashMap with up to 12 entries
_LOADED = (3, 4)  # a HashMap grows when more than this part of its slots is taken


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    result = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        result = (31 * result + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return result - (1 << 32) if result >> 31 else result


def java_uuid_hash(uuid: bytes) -> int:
    """Uuid.hashCode of Kafka, as an unsigned 32-bit number."""
    a, b, c, d = (int.from_bytes(uuid[at : at + 4], "big") for at in range(0, 16, 4))
    return a ^ b ^ c ^ d


def java_length(text: str) -> int:
    """String.length: in UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def java_sort_key(text: str) -> bytes:
    """Sorts as String.compareTo: by UTF-16 units, where Python compares code points."""
    return text.encode("utf-16-be", "surrogatepass")


def slots_when_grown(entries: int) -> int:
    """The slots of a HashMap that was empty and took so many entries."""
    slots = SLOTS
    while entries * _LOADED[1] > slots * _LOADED[0]:
        slots *= 2
    return slots


def slots_of_copy(entries: int) -> int:
    """The slots of a HashSet that was made from a collection of so many."""
    slots = SLOTS
    while slots < entries * _LOADED[1] // _LOADED[0] + 1:
        slots *= 2
    return slots


def java_slot(hashed: int, slots: int) -> int:
    """The place of a hash in a HashMap, which goes through its entries slot by slot."""
    unsigned = hashed & 0xFFFFFFFF
    return (unsigned ^ unsigned >> 16) & (slots - 1)


def java_order(texts: Iterable[str]) -> list[str]:
    """The iteration order of a HashMap: by slot, within a slot in order of insertion."""
    inserted = list(texts)
    slots = slots_when_grown(len(inserted))
    return sorted(inserted, key=lambda text: java_slot(java_hash(text), slots))
