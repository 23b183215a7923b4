"""The scheduling loop: sole owner of the table. Takes pods without a node, decides, binds, and settles."""
