"""From a manifest of a TFJob, a PyTorchJob or a Job to the folder of a pipeline."""
