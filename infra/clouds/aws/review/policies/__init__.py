"""Policies about resources of AWS."""
