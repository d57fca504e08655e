"""What training by many nodes takes: a model of it, and the bytes that really cross between processes of one machine.

`python -m tools.scale` prints the table of docs/scale.md, which says how `--wire` counts bytes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer.training.parallel import BUCKET

NODES = (8, 16, 32, 64, 128, 256, 512)
PARAMETERS = 124_439_808  # of GPT-2 small
FORWARD = 1 / 3  # of a step's computing; the gradients come during the other two thirds


@dataclass(frozen=True)
class Network:
    """Bytes a second in each direction of each node, and seconds until a message arrives."""

    name: str
    bandwidth: float
    latency: float


NETWORKS = (
    Network("1 Gbit/s", 0.125e9, 50e-6),
    Network("10 Gbit/s", 1.25e9, 50e-6),
    Network("100 Gbit/s", 12.5e9, 5e-6),
)


def sent(size: int, nodes: int) -> float:
    """Bytes that each node sends to add up `size` bytes over a ring: no way has fewer (Patarasuk and Yuan 2009)."""
    return 2 * (nodes - 1) / nodes * size


def summing(size: int, nodes: int, network: Network) -> float:
    """Seconds of such a sum: 2 (n - 1) messages of a share each, one after another."""
    return sent(size, nodes) / network.bandwidth + 2 * (nodes - 1) * network.latency


def step(nodes: int, network: Network, computing: float, bucket: int = BUCKET) -> float:
    """Seconds of a step whose buckets are final at even distances of the backward pass and travel one at a time."""
    whole = 4 * PARAMETERS
    count = max(1, round(whole / bucket))
    free = 0.0  # when the network has sent what came before
    for index in range(count):
        final = computing * (FORWARD + (1 - FORWARD) * (index + 1) / count)
        free = max(free, final) + summing(whole // count, nodes, network)
    return max(free, computing)


def table(computing: float) -> str:
    """Nodes by networks: seconds of a step, share of them in which a node computes, and that share without overlap."""
    lines = ["| nodes | sent by each, MB |" + "".join(f" {network.name} |" for network in NETWORKS)]
    lines.append("|---|---|" + "---|" * len(NETWORKS))
    for nodes in NODES:
        cells = [f"{nodes}", f"{sent(4 * PARAMETERS, nodes) / 1e6:.0f}"]
        for network in NETWORKS:
            took = step(nodes, network, computing)
            behind = computing + summing(4 * PARAMETERS, nodes, network)
            cells.append(f"{took:.2f} s, {computing / took:.0%} ({computing / behind:.0%})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def wire(size: int = 40_000_000) -> None:
    """Print the bytes of one sum of `size` bytes over the processes of this machine, beside the model's."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    array = np.ones(size // 4, np.float32)
    comm.Allreduce(MPI.IN_PLACE, array)  # connections are made
    comm.Barrier()
    before = _loopback()
    comm.Barrier()
    comm.Iallreduce(MPI.IN_PLACE, array).Wait()
    comm.Barrier()
    if comm.rank == 0:
        counted, expected = _loopback() - before, comm.size * sent(size, comm.size)
        print(f"{comm.size} processes, a sum of {size:,} bytes: {counted:,} bytes sent, the model says {expected:,.0f}")


def _loopback() -> int:
    """Bytes that the loopback device has sent, by Linux's count."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            return int(figures.split()[8])
    raise OSError("/proc/net/dev knows no loopback device")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.scale", description=__doc__)
    parser.add_argument("--wire", action="store_true", help="count the bytes of a sum, under mpiexec")
    parser.add_argument("--computing", type=float, default=1.0, metavar="S", help="seconds a node computes a step (1)")
    options = parser.parse_args()
    if options.wire:
        wire()
    else:
        print(table(options.computing))


if __name__ == "__main__":
    main()
