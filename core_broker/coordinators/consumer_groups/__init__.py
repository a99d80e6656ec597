"""Consumer groups of KIP-848: the coordinator decides who reads what, and members follow at their heartbeats."""
