"""A cluster that another stack has: pools, store, identity and kubeconfig from that stack's outputs."""
