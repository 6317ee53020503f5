"""What is declared: clusters, node pools, storage, identity, and the Jobs that run on them."""
