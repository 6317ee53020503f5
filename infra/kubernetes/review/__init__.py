"""What a reviewer wants to know of Kubernetes objects; none of it imports the SDK."""
