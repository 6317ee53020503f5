"""The preview: what a change would do to each stack, what it costs, and what is wrong with it."""
