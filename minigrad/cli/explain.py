"""`minigrad explain OP`: formula, derivative with its derivation, what is saved, cost, kernels, a worked example."""

from __future__ import annotations

import argparse

from minigrad.cli import Refusal
from minigrad.ops.registry import OPS
from minigrad.study.explain import explain
from minigrad.study.typeset import can_show, typeset


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("op", nargs="*", metavar="OP", help="names of ops; without a name, all ops are listed")


def run(arguments: argparse.Namespace) -> int:
    if not arguments.op:
        write = typeset if can_show() else str
        for op in OPS.values():
            print(f"{op.name:22}{write(op.formula)}")
        return 0
    told, refused = [], []
    for name in arguments.op:
        try:
            told.append(explain(name))
        except ValueError as error:
            refused.append(str(error))
    if told:
        print("\n\n\n".join(told))
    if refused:
        raise Refusal("; ".join(refused))
    return 0
