"""Images on Google Cloud."""
