"""The page of a cluster, built from the files of its runs. Nothing is decided here."""
