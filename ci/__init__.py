"""What the workflows in .github run.

The standard library alone: jobs that hold a token install nothing.
"""
