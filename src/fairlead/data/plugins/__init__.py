"""The plugins that Fairlead brings, one file each; `registry.py` has them by name."""
