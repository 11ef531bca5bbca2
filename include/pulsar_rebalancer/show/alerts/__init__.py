"""Which conditions are told to people, when, and in which words."""
