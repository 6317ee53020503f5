"""Which steps make up a run, and in which order."""
