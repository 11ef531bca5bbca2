"""Act 3, carry out: the gate, the moves and splits (each verified with the brokers), and their history."""
