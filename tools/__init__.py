"""The clone's own programs: pictures, listings, benchmarks. Nothing here is installed."""
