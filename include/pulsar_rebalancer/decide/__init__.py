"""Act 2: a run's plan, which says what moves, what is split, what stays, and why."""
