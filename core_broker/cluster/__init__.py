"""What the cluster agrees on: the metadata log, its image, and the controller that decides."""
