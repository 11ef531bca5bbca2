"""What one run asks, reads, finds, plans and ends with: its tables and documents."""
