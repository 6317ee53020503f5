"""Policies: what may not be in a stack, as plain functions over its resources."""
