"""Rolling restarts: what one would do, and its steps."""
