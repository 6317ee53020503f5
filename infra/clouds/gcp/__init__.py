"""Google Cloud: GKE clusters with GPU node pools, a bucket they share, and the identity that may use it."""
