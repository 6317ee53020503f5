"""A cluster that is already there, by kubeconfig and context, with a store on its volumes."""
