"""The architecture picture of a stack: its content, its layout, and its SVG."""
