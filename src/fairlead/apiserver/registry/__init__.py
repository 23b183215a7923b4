"""Objects created, read, changed and deleted, and what differs from kind to kind."""
