"""`isthmus broker check`: what is wrong with a data directory, and its repair, while no broker runs on it."""
