"""The transactions that this broker coordinates (KIP-98, 360, 447, 664, 890): who may write, and how each one ends."""
