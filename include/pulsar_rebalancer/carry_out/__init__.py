"""Act 3: the gate, verified moves and splits, and their history."""
