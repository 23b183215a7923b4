"""A Kubernetes API server on SQLite. Imports a clock and quantities, nothing else of Fairlead."""
