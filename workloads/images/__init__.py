"""What the pod of an image's build runs before BuildKit, and BuildKit's own script."""
