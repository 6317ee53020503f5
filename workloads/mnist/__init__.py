"""Handwritten digits: prepare the images, train a small network on them, predict new ones."""
