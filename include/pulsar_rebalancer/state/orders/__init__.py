"""Orders from people, and rules that prevent moves: documents, conditions, and the text for people."""
