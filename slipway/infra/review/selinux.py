"""What SELinux asks of files that pods on OpenShift use, and how to see what it refused."""


def labels_of_files(level: str) -> str:
    """A clause about the labels that pods with this level may use.

    Files need the type ``container_file_t`` and the pod's level, or a level without categories
    (container_selinux(8), read in November 2026).
    """
    return f"the type container_file_t and the level {level} or s0"


def command_of_denials(node: str) -> str:
    """The command that shows what SELinux refused on a node."""
    return f"oc debug node/{node} -- chroot /host grep denied /var/log/audit/audit.log"
