"""Act 2, decide: make a run's plan, which has the bundles to move or split, and why others are not moved."""
