"""Rules that join several keys or need the catalogue of machine types and accelerators."""
