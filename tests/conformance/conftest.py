"""Settings of the tests of conformance: torch computes on one thread in each process.

The models are small, and threads that wait for each other between small operations take many times as long when the
tests run in parallel. Processes that the suite starts for an implementation are held to one thread, too.
"""

import importlib.util

if importlib.util.find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
