"""Act 1, collect: take one sample of a cluster from its brokers' responses, and write it as a run's tables."""
