"""The features that there are: a folder beside this file for each name. Without its line, a feature is gone."""

NAMES = (
    "items",
    "search",
    "nodes",
    "page",
    "notebook",
    "tensorboard",
    "serving",
    "importing",
    "history",
    "budget",
    "foreign",
    "kueue",
)
"""In the order in which the pages have what they add. A search needs items."""
