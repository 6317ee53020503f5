"""What several clouds, and what is the same everywhere, declare alike in clusters."""
