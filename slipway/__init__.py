"""Slipway: one Pulumi program from an empty cloud project to a prediction."""
