"""A cluster's page, built from the files of its runs. Nothing is decided here."""
