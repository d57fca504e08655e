"""What a launcher would start: `torchrun --nproc-per-node 1 train.py` is the script with the launcher's environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


@dataclass(frozen=True)
class Script:
    """A script, or the name of a module as `python -m` takes it, and its arguments."""

    name: str
    arguments: Sequence[str] = ()
    is_module: bool = False


def launched(script: Script) -> Script:
    """The script that a launcher of torch would run in its one process, whose environment is set as the launcher sets
    it; any other script as it is. Raises ValueError where the launcher is asked for more than one process."""
    if script.name not in LAUNCHERS:
        return script
    from torch.distributed.run import get_args_parser

    options = get_args_parser().parse_args([*script.arguments])
    if str(options.nproc_per_node) != "1" or str(options.nnodes) not in ("1", "1:1"):
        raise ValueError("one process is watched; give torchrun --nproc-per-node 1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"), "0")
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"), "1")
    os.environ.update(ranks | sizes, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return Script(options.training_script, options.training_script_args, bool(options.module))
