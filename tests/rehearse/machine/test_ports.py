"""Two rehearsals of one machine never take one port, though their servers listen only later."""

import socket
import subprocess
import sys

from slipway.rehearse.machine.processes import LOOPBACK, as_declared, free_ports
from tests.support.checkout import ROOT

OTHER = """
import sys
from slipway.rehearse.machine.processes import as_declared
print(*as_declared([int(sys.argv[1])]))
"""


def take_elsewhere(port: int, waits: bool = False) -> subprocess.Popen[str]:
    """Another process that wants the port, prints which one it took, and may then stay; 0 is never to be had."""
    wait = "\nsys.stdout.flush()\nsys.stdin.read()" if waits else ""
    command = [sys.executable, "-c", OTHER + wait, str(port)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def port_of_another() -> int:
    """A free port that a process took which has ended: it keeps the port from nobody."""
    output, _ = take_elsewhere(0).communicate(timeout=60)
    return int(output)


def test_a_port_that_this_process_found_is_found_by_no_other() -> None:
    (port,) = free_ports(1)
    output, _ = take_elsewhere(port).communicate(timeout=60)
    assert int(output) != port


def test_a_declared_port_that_another_process_found_is_free_again_when_that_one_ends() -> None:
    port = port_of_another()
    with take_elsewhere(port, waits=True) as other:
        assert other.stdin
        assert other.stdout
        assert int(other.stdout.readline()) == port
        (another,) = as_declared([port])
        assert another != port
        other.stdin.close()
        other.wait(timeout=60)
    assert as_declared([port]) == [port]


def test_a_server_that_ended_with_open_connections_has_its_port_again() -> None:
    port = port_of_another()
    with socket.create_server((LOOPBACK, port)) as server, socket.create_connection((LOOPBACK, port)) as client:
        (another,) = as_declared([port])
        assert another != port
        # Whoever ends first keeps the connection for a minute, in TIME_WAIT.
        server.accept()[0].close()
        client.recv(1)
    assert as_declared([port]) == [port]
