"""The places to run: one package for each, and the registry that names them."""
