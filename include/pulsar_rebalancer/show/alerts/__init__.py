"""Which conditions alert people, when, and in which words."""
