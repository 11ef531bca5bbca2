"""People's orders and other rules that prevent moves: the documents, the conditions, and the texts shown to people."""
