"""What people and rules hold back: the documents, when each one holds, and how it is told."""
