"""Objects on SQLite."""
