"""Policies about resources of Google Cloud."""
