"""People's orders, and the rules that prevent moves: their documents, their conditions, and their text for people."""
