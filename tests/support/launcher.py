"""The stand-in for a program that tests start; the command server runs the program
(command_server.py).

Arguments: the address of the command server, then the command. The command uses this process's
input, output, folder and environment. Signals are forwarded to it, and its exit code becomes that
of this process. If this process is killed, so is the command. The module imports little, because it
is started often.
"""

import _socket
import marshal
import posix
import signal
import sys

connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
connection.connect("\0" + sys.argv[1])
environment = {bytes(name): bytes(value) for name, value in posix.environ.items()}
order = marshal.dumps((sys.argv[2:], posix.getcwd(), environment))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
head = len(order).to_bytes(4, "big")
connection.sendmsg([head], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
connection.sendall(order)
process = int.from_bytes(connection.recv(4), "big")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda received, _: posix.kill(process, received))
status = connection.recv(4)
code = posix.waitstatus_to_exitcode(int.from_bytes(status, "big")) if status else 1
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)
