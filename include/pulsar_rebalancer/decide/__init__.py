"""Act 2: what moves, what is split and what stays, and why: the plan of a run."""
