"""`minigrad explain OP`: formula, derivative with its derivation, what is saved, cost, kernels, a worked example."""

from __future__ import annotations

import argparse

from minigrad.cli import Refusal
from minigrad.ops.registry import OPS
from minigrad.study.explain import explain


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", nargs="*", metavar="OP", help="names of ops; without a name, all ops are listed")


def run(arguments: argparse.Namespace) -> int:
    if not arguments.op:
        for op in OPS.values():
            print(f"{op.name:22}{op.formula}")
        return 0
    try:
        print("\n\n\n".join(explain(name) for name in arguments.op))
    except ValueError as error:
        raise Refusal(str(error)) from None
    return 0
