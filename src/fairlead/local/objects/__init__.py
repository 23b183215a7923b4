"""What an object is: its facts, shape, defaults, rules, patches and owners.

Pure: no HTTP, no store, no loop, and time is an argument. Objects are plain dicts, decoded JSON. What is asked of
Kubernetes' own kinds comes from `facts.json`; what is asked of a custom kind comes from its definition (`crd.py`).
"""
