"""What a reviewer wants to know of resources on AWS; none of it imports the SDK."""
