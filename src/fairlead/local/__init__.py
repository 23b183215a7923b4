"""The embedded cluster: an API server on SQLite, workload controllers, and what runs pods on this machine."""
