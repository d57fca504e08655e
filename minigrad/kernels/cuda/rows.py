"""Rows in registers: how kernels over the last dimension share a row among threads.

A row of up to `threads * PER` elements is loaded once: thread t holds elements t, t + threads, ... A team is one warp
(four rows a block) or a whole block. Longer rows are read again for every pass, by blocks of `LOOP` threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minigrad.kernels.cuda.language import cuda, device
from minigrad.kernels.cuda.teams import WARP

WARPS = 4  # rows of a block whose teams are warps
LOOP = 1024  # threads of a block that does not hold its row


class Team(NamedTuple):
    """threads of a row, and how many elements each of them holds: 0 for rows that are read again."""

    threads: int
    per: int

    @property
    def block(self) -> int:
        return max(self.threads, WARP * WARPS) if self.threads == WARP else self.threads

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.block // self.threads

    @property
    def name(self) -> str:
        return f"{self.threads}x{self.per}" if self.per else f"{self.threads}_loop"


TEAMS = (Team(32, 2), Team(32, 8), Team(128, 8), Team(512, 8), Team(1024, 8), Team(LOOP, 0))


def team_for(n: int, teams: Iterable[Team] = TEAMS) -> Team:
    """The team of rows of n elements: the first, in the order of `TEAMS`, that holds them."""
    return next(team for team in teams if not team.per or n <= team.threads * team.per)


def grid_for(team: Team, rows: int) -> int:
    """Blocks for so many rows."""
    return -(-rows // team.rows)


@device
def warp_row():
    """(row, thread within its team) where teams are warps."""
    return cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5), cuda.threadIdx.x & 31


@device
def block_row():
    """(row, thread within its team) where a team is a block."""
    return cuda.blockIdx.x, cuda.threadIdx.x
