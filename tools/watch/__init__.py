"""What a stack's Jobs do right now, read from their clusters: ``make watch`` and ``make logs``."""
