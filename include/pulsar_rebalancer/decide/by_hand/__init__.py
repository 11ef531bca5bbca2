"""Plans that people request: what moves, which clients it disturbs, and the predicted load of the brokers."""
