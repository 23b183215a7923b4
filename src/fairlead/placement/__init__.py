"""The scheduling loop: sole owner of the table. Takes pods that want a node, decides, binds, and settles."""
