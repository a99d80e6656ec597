"""Where the rows of a table are: `store.py` says what a store does; `memory.py` has them in a dict, `disk.py` in a
database (`database.py`) in a directory of its own (`layout.py`); `opening.py` makes the one that a table asks for.
Built over any store: `versioned.py` has rows as of a time, `expiry.py` finds rows by time.
"""
