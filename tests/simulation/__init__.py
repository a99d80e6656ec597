"""A deterministic simulator: many hosts in one process, on a simulated clock, network and disk, from one seed.

It supplies four things only: an event loop, a files backend, a wall clock and a random source. Product code runs
on it unchanged. `python -m tests.simulation --help` runs scenarios by name.
"""
