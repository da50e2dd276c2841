"""`python -m tests.conformance`: reached, passed, failed, excluded; not zero when anything failed.

`--url`, `--home` and two files with keys try a server that is already running here; what follows `--` goes to pytest
(e.g. `-- -k list`).
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.processes import Program, clean_environment, free_port, module
from tests.conformance import openapi, product, stored, suite
from tests.conformance.counter import LEDGER_PATH
from tests.conformance.judge import describe, judge, parse_exclusions
from tests.conformance.openapi import Spec, validate
from tests.conformance.product import Served

_SUITE_LIMIT_S = 1800.0
_EXCLUDED = Path(__file__).with_name("excluded.txt")


def run_suite(served: Served, extra: list[str]) -> bool:
    """The client's own cases; True when all is well."""
    brought = suite.obtain()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="coderai-conformance-") as scratch:
        keys = (str(served.key_file), str(served.admin_key_file))
        argv = module("tests.conformance.counter", str(port), served.url, *keys)
        with Program(argv, Path(scratch) / "log", served.environment) as counter:
            counter.wait_for(port, LEDGER_PATH, within_s=20)
            results = suite.run(brought, port, extra, _SUITE_LIMIT_S)
    exclusions = parse_exclusions(_EXCLUDED.read_text())
    if extra:  # a part of the suite: an exclusion outside it is not stale
        exclusions = {test_id: reason for test_id, reason in exclusions.items() if test_id in {r.id for r in results}}
    verdict = judge(results, exclusions)
    print(f"== openai {suite.VERSION}, tests/api_resources: {', '.join(suite.FILES)}")
    print(describe(verdict, exclusions), flush=True)
    return verdict.good


def run_openapi(served: Served, spec_path: Path | None) -> bool:
    """Real answers against the OpenAPI document; True when all fit, or there is no document."""
    print("== OpenAI's OpenAPI document")
    if spec_path is None or not spec_path.is_file():
        print(f"skipped: no document at {spec_path or '(nothing given)'}; name one with --spec")
        return True
    good = True
    embeds = product.EMBEDDING_ALIASES[0]
    wanted = openapi.checks(product.TEXT_ALIASES[0], embeds)
    wanted += stored.checks(product.TEXT_ALIASES[0], embeds, product.TRANSCRIPTION_ALIASES[0], product.IMAGE_ALIASES[0])
    for check, problems in validate(Spec(spec_path), served.port, served.key, wanted):
        wrong = [problem for problem in problems if problem.partition(": ")[0] not in check.allowed]
        print(f"{'FAILED' if wrong else 'fits  '}  {check.name}: {check.schema}", flush=True)
        for place in {problem.partition(": ")[0] for problem in problems} & set(check.allowed):
            print(f"          allowed {place}: {check.allowed[place]}")
        for problem in wrong[:8]:
            print(f"          {problem}")
        good = good and not wrong
    return good


def main() -> int:
    """Parse the command line, run both parts."""
    arguments = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    arguments.add_argument("--url", help="root of a running server; default: start this product with real models")
    arguments.add_argument("--key-file", type=Path, help="file with an API key of the running server")
    arguments.add_argument("--admin-key-file", type=Path, help="file with an admin key of it")
    arguments.add_argument("--home", type=Path, help="its home: a model is added there for each case that deletes one")
    arguments.add_argument("--spec", type=Path, help="OpenAI's openapi.json")
    arguments.add_argument("--part", choices=("suite", "openapi"), help="run one part only")
    arguments.add_argument("pytest_arguments", nargs="*", help="for the suite's pytest")
    given = arguments.parse_args()
    if len({given.url is None, given.key_file is None, given.admin_key_file is None, given.home is None}) > 1:
        arguments.error("--url, --key-file, --admin-key-file and --home go together")
    good = True
    with ExitStack() as stack:
        served = (
            Served(
                urlsplit(given.url).port or 80,
                given.key_file,
                given.admin_key_file,
                clean_environment(CODERAI_HOME=str(given.home)),
            )
            if given.url
            else stack.enter_context(product.serving())
        )
        if given.part != "suite":
            good = run_openapi(served, given.spec) and good
        if given.part != "openapi":
            good = run_suite(served, given.pytest_arguments) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
