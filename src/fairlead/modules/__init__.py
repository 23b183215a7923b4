"""Modules on virtual nodes: bases found and kept as nodes, modules installed on them as pods through arklet."""
