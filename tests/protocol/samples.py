"""Messages to test with: hypothesis strategies made from the declared fields, and what a version keeps of a message."""

from hypothesis import strategies as st

from isthmus.protocol.messages import (
    APIS,
    consumer_protocol,
    control_records,
    envelope,
    group_records,
    metadata_records,
    transaction_records,
)

TEXT = st.one_of(st.sampled_from(["", "flights", "ewr.flights", "naïve-✈"]), st.text(max_size=8))
INTEGERS = {"int8": (1, True), "int16": (2, True), "int32": (4, True), "int64": (8, True)}
INTEGERS |= {"uint16": (2, False), "uint32": (4, False)}


def all_codecs():
    for api in APIS.values():
        yield api.request
        yield api.response
    yield envelope.PRINCIPAL
    yield from metadata_records.CODECS.values()
    yield from control_records.CODECS.values()
    yield from group_records.CODECS
    yield from transaction_records.CODECS
    yield from consumer_protocol.CODECS


CODECS = {codec.name: codec for codec in all_codecs()}


def versions_of(codec):
    return range(codec.versions.low, codec.versions.high + 1)


def scalars(kind):
    if kind in INTEGERS:
        size, signed = INTEGERS[kind]
        bits = size * 8 - signed
        return st.integers(-(1 << bits) if signed else 0, (1 << bits) - 1)
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return TEXT
    if kind == "uuid":
        return st.binary(min_size=16, max_size=16)
    if kind == "float64":
        return st.floats(allow_nan=False)
    return st.one_of(st.binary(max_size=6), st.just(bytes(200)))


def values(field, version):
    if field.kind == "struct":
        value = structs(field.struct, version)
    elif field.kind == "array":
        value = st.lists(structs(field.struct, version) if field.struct else values(field.of, version), max_size=2)
    else:
        value = scalars(field.kind)
    if field.nullable.has(version) or (field.tag is not None and field.kind == "struct"):
        value = st.one_of(value, st.none())
    return value


_strategies: dict = {}


def structs(cls, version):
    """Messages that hold only what their version carries."""
    if (cls, version) not in _strategies:
        fields = {f.name: values(f, version) for f in cls.FIELDS if f.versions.has(version)}
        _strategies[cls, version] = st.builds(cls, **fields)
    return _strategies[cls, version]


def filled(cls, version):
    """A message with something in every field that its version carries."""
    message = cls()
    for field in cls.FIELDS:
        if not field.versions.has(version):
            continue
        if field.kind == "array":
            setattr(message, field.name, [element(field, version), element(field, version)])
        else:
            setattr(message, field.name, element(field, version))
    return message


def element(field, version):
    if field.struct is not None:
        return filled(field.struct, version)
    kind = field.of.kind if field.of else field.kind
    samples = {"string": "flights", "bytes": b"bytes", "records": bytes(150), "uuid": bytes(range(16)), "bool": True}
    return samples.get(kind, 77)


def encoded(codec, message, version):
    return b"".join(codec.encode(message, version))
