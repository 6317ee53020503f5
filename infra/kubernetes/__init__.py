"""What is the same on every cluster: the workspace, the files of a step, its Job, and the gates before it."""
