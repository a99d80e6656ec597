from array import array

class ColumnBuffers:
    rows: int
    offsets: array[int]
    timestamps: array[int]
    key_offsets: array[int]
    value_offsets: array[int]
    key_data: bytearray
    value_data: bytearray
    key_valid: bytearray
    value_valid: bytearray
    key_nulls: int
    value_nulls: int
    header_rows: array[int] | None
    header_key_offsets: array[int]
    header_value_offsets: array[int]
    header_key_data: bytearray
    header_value_data: bytearray
    header_nulls: list[int]
    def __init__(self, rows: int, data_bytes: int) -> None: ...
    def finish(self) -> None: ...
