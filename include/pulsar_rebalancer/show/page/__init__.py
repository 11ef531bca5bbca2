"""What a person sees of a cluster: made from the files of its runs, and decided by nobody here."""
