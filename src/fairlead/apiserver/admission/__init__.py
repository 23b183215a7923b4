"""What an object passes before it is stored: built-in plugins, then webhooks."""
