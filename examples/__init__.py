"""Examples that run as the docs show; `isthmus demo` runs `flights`."""
