from ._frames import AtOnce

COMPILED: bool

class FetchAtOnce(AtOnce):
    def __init__(self, version: int) -> None: ...
