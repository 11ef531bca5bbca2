"""Configuration: the settings of a cluster, the clusters file, and the precedence of the sources of a setting."""
