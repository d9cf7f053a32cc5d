"""Two machines on an emulated line, in namespaces of their own: one sends bytes to the other, then the line is cut.

    python two_machines.py FOLDER

Prints what was seen as JSON.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.distributed.machines.network import Line, Network

BYTES, ROUND_TRIP, BITS = 400_000, 0.05, 20e6
SERVE = """
import socket
with socket.create_server(("0.0.0.0", 7000)) as listener:
    print("listening", flush=True)
    connection = listener.accept()[0]
    connection.sendall(b"!")
    got = 0
    while data := connection.recv(1 << 16):
        got += len(data)
    connection.sendall(b"!")
    print(got, flush=True)
"""
SEND = """
import socket, sys, time
began = time.monotonic()
connection = socket.create_connection((sys.argv[1], 7000))
connection.recv(1)
met = time.monotonic()
connection.sendall(bytes(int(sys.argv[2])))
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(met - began, time.monotonic() - met)
"""
KNOCK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 7001), 0.3)
except ConnectionRefusedError:
    print("refused")
except TimeoutError:
    print("nothing")
"""


def main() -> None:
    """Measure."""
    machines = {"near": Line(BITS, BITS), "far": Line(10 * BITS, 10 * BITS)}
    with Network(machines, Path(sys.argv[1]), ROUND_TRIP, loss=0.0, seed=3) as network:

        def on(name: str, code: str, *arguments: str) -> list[str]:
            return [*network.on(name), sys.executable, "-I", "-S", "-c", code, *arguments]

        def knock() -> str:
            words = on("near", KNOCK, network.address("far"))
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

        server = subprocess.Popen(on("far", SERVE), stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        server.stdout.readline()
        words = on("near", SEND, network.address("far"), str(BYTES))
        sent = subprocess.run(words, capture_output=True, text=True, check=True)
        meeting, sending = map(float, sent.stdout.split())
        got, _ = int(server.stdout.readline()), server.wait()
        counts = {name: [each.sent, each.received] for name, each in network.counts().items()}
        knocks = [knock()]
        network.cut("far", "up", True)
        knocks.append(knock())
        network.cut("far", "up", False)
        knocks.append(knock())
        lost = network.counts()["far"].lost
    seen = {
        "meeting": meeting,
        "sending": sending,
        "got": got,
        "counts": counts,
        "knocks": knocks,
        "lost": lost,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
