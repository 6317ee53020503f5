"""What a reviewer wants to know of resources on Google Cloud; none of it imports the SDK."""
