"""The pytest layer, registered by the `pytest11` entry point."""
