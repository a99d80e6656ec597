"""Side-by-side runs against real peers: `python -m benchmarks list|NAME...|all`.

Every case runs A, B, A, B: Isthmus, then stock Kafka, on the same machine, by the same load, `--pairs` times. The
table gives medians and spreads. Loads are processes of their own, bounded in time and bytes, on loopback.
"""
