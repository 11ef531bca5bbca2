"""A cluster simulated minute by minute, with columns of figures: a month takes seconds (docs/simulation.md)."""
