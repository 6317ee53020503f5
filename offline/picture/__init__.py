"""The architecture picture of a stack: what is in it, where it stands, and how it is written as SVG."""
