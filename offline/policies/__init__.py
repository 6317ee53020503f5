"""Policies: functions that find in the resources of a stack what must not be there."""
