"""Manual plans: bundles to move at a person's request, the disturbed clients, and the brokers' predicted load."""
