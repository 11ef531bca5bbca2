"""A cluster's page, built from the files of its runs. No decisions are made here."""
