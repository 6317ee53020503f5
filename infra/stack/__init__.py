"""What `infra/program.py` is made of, by subject."""
