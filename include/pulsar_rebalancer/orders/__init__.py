"""Orders of operators and other rules that prevent moves: their documents, forms and effect."""
