"""Images on AWS."""
