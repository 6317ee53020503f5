"""Rehearse a stack: the program that `pulumi up` runs, evaluated here, its Jobs run as local processes."""
