"""First step of a run: take one sample of a cluster from its brokers' answers, as the tables of a run."""
