"""What a strategy would have done: recorded load through one variant after the other, in closed loop."""
