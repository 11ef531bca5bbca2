"""Act 2, decide: a run's plan, with the bundles to move or split, and why other bundles are not moved."""
