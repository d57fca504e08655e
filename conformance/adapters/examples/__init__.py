"""Small examples of what `--impl` can be pointed at."""
