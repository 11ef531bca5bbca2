"""Act 3, carry out: the gate, moves and splits that are verified with the brokers, and their history."""
