"""Orders from people, and rules that prevent moves: their documents, when they apply, and their text for people."""
