"""Configuration: the settings of a cluster, the clusters file, and which source of a setting takes precedence."""
