"""Manual plans: the bundles that a person moves, the clients that this disturbs, and the brokers' predicted load."""
