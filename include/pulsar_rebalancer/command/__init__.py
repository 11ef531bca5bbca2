"""The command `pulsar-rebalancer`: a module for each subcommand."""
