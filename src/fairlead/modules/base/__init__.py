"""The Python base: a process that installs, runs, switches and removes Python modules, on the wire of arklet."""
