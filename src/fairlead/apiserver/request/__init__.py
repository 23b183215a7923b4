"""A request read: path and verb, body, options, selectors."""
