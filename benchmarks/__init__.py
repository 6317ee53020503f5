"""Measurements that the documentation quotes. Nothing here runs in a pod, and no test asserts a time."""
