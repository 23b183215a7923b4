"""Becomes another program that dies with its parent: `python leash.py PARENT_PID PROGRAM ARGS…`.

The rig starts every server through it, so that a killed test run leaves no server behind. Must stay free of
imports beyond the standard library: it runs before every server, and its pid is the server's pid.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: int, command: list[str]) -> None:
    if sys.platform == "linux":
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
        # The parent may have died before prctl was in force; then nobody would send the signal.
        if os.getppid() != parent_pid:
            sys.exit("the parent is already gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
