"""Take one sample of a cluster: what its brokers report, as the tables of a run."""
