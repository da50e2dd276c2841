"""`python -m benchmarks`: the proxy comparison. `python -m benchmarks.memory` and `.text` are the other two."""

from benchmarks.proxy_overhead import main

if __name__ == "__main__":
    main()
