"""Act 2, decide: make a run's plan, with the bundles to move or split and the reasons for all others."""
