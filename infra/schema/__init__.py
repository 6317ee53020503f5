"""The words of a stack file: value types, quantities, Kubernetes names, and what a wrong one gives."""
