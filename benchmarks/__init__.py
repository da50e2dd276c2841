"""What the front costs, measured beside other proxies in one run: `python -m benchmarks`."""
