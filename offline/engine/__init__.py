"""Evaluates a Pulumi program in this process, with emulators in place of the clouds."""
