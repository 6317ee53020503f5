"""What the pipelines in .github/workflows and .gitlab-ci.yml run.

The standard library alone: jobs that hold a token install nothing.
"""
