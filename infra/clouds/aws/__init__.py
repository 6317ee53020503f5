"""Amazon Web Services: EKS clusters, node groups, and a bucket mounted as a file system."""
