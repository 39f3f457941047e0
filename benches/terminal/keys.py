"""Presses keys in a program's terminal while it shows a stream, and says when each came onto the screen.

Standard library only. Arguments: how many keys, then the program and its arguments. One JSON object on stdout: `latencyMs`, one
number a key, `bytes` that were written onto the screen meanwhile, and `memoryKb`, the most that the program held (VmHWM).
"""

import fcntl
import json
import os
import pty
import random
import select
import struct
import sys
import termios
import time

keys = int(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))

seen = b""
total = 0


def until(what, within):
    """Reads until it has come; the seconds that took."""
    global seen, total
    began = time.perf_counter()
    while what not in seen:
        left = began + within - time.perf_counter()
        if left <= 0:
            return None
        ready, _, _ = select.select([terminal], [], [], left)
        if ready:
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:
                sys.exit(f"the program ended: {seen[-2000:]!r}")
            total += len(piece)
            seen = (seen + piece)[-(1 << 17):]
    return time.perf_counter() - began


def idle(seconds):
    """Reads for so long, as a terminal does."""
    until(b"\x00never\x00", seconds)


if until("what is to be done?".encode(), 20) is None:
    sys.exit("the interface did not come")
os.write(terminal, b"stream\r")
if until(b"delta", 20) is None:
    sys.exit("the stream did not come")
idle(1)
random.seed(7)
latency = []
before = total
for at in range(keys):
    # Letters that stand nowhere else on the screen.
    letter = chr(0x400 + at % 200).encode()
    seen = b""
    os.write(terminal, letter)
    took = until(letter, 5)
    latency.append(None if took is None else round(took * 1000, 3))
    idle(random.uniform(0.01, 0.04))
    if at % 40 == 39:
        os.write(terminal, b"\x15")
        idle(0.05)
with open(f"/proc/{pid}/status") as status:
    memory = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps({"latencyMs": latency, "bytes": total - before, "memoryKb": memory}))
os.kill(pid, 15)
