"""`python -m benchmarks`: the proxy comparison; `python -m benchmarks.text` and `.memory` are the other two parts."""

from benchmarks.proxy_overhead import main

if __name__ == "__main__":
    main()
