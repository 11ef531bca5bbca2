"""Plans that people ask for: what moves, whom it disturbs, and how the brokers would be loaded after it."""
