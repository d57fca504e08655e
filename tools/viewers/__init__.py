"""What other viewers show of five models, and what ours shows: `python -m tools.viewers`."""
