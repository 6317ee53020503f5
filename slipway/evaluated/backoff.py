"""How long the Job controller waits before it makes the pod that follows a failed one."""

BACKOFF, LONGEST_BACKOFF = 10.0, 600.0
"""Seconds before the pod after the first failure, and the most of them (`DefaultJobPodFailureBackOff` and
`MaxJobPodFailureBackOff` in pkg/controller/job/job_controller.go, Kubernetes 1.37.2)."""


def wait_after(failures: int, first: float = BACKOFF) -> float:
    """Seconds until the next pod after so many ``failures`` in a row, of which it waits ``first`` after one.

    Failures that a policy ignores count, too (pkg/controller/job/backoff_utils.go, Kubernetes 1.37.2).
    """
    return min(first * 2 ** max(failures - 1, 0), LONGEST_BACKOFF)
