"""What a reviewer wants to know of clusters that are already there; none of it imports the SDK."""
