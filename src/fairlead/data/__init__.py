"""Data-aware admission: pods go where their data is cached.

A pod's claims lead to datasets of Fluid; plugins turn what is known of them into a patch of the pod.
"""
