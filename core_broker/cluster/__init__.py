"""The cluster's metadata: its log, its image, and the controller that decides about changes."""
