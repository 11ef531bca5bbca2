"""Act 1, collect: take one sample of a cluster from its brokers' answers, and write it as the tables of a run."""
