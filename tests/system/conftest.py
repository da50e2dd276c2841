"""One server for all tests that only ask; installs of their own for those that break something."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.system.far import Far, far_service
from tests.system.product import Product
from workers.packaged.catalogue import PACKAGED, is_ready
from workers.packaged.ready import prepare

MakeProduct = Callable[..., Product]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each of these tests needs real weights and several processes."""
    for item in items:
        if "tests/system/" in item.nodeid:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the packaged models stand ready; other homes take them by hard links."""
    home = tmp_path_factory.mktemp("packaged") / "home"
    for done in asyncio.run(prepare(home)):
        assert not done.problem, f"{done.name}: {done.problem}"
    return home


@pytest.fixture(scope="session")
def make_home(packaged: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A new home with the packaged models, which costs no disk."""

    def made() -> Path:
        home = tmp_path_factory.mktemp("install") / "home"
        home.mkdir(mode=0o700)
        (home / "models").mkdir(mode=0o700)
        shutil.copytree(packaged / "models" / "packaged", home / "models" / "packaged", copy_function=os.link)
        assert all(is_ready(model, home) for model in PACKAGED)
        return home

    return made


@pytest.fixture(scope="session")
def product(make_home: Callable[[], Path]) -> Iterator[Product]:
    """The one install that every test may ask and none may harm."""
    served = Product(make_home())
    yield from _served(served)


@pytest.fixture(scope="session")
def client(product: Product) -> OpenAI:
    """OpenAI's client of the shared install, without retries."""
    return product.client()


@pytest.fixture(scope="module")
def make_product(make_home: Callable[[], Path]) -> Iterator[MakeProduct]:
    """Installs of a module's own: `make_product(config=..., settings=...)`, not started; ended after the module."""
    made: list[Product] = []

    def make(*, config: str = "", settings: dict[str, str] | None = None) -> Product:
        made.append(Product(make_home(), config=config, settings=settings))
        return made[-1]

    yield make
    for one in made:
        end(one)


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    """A far service of a module's own."""
    with far_service() as server:
        yield server


def _served(served: Product) -> Iterator[Product]:
    try:
        served.start()
        yield served
    finally:
        end(served)


def end(served: Product) -> None:
    """Stop it, if a test has not; whatever happened, no process of it may be left."""
    if served.process is None:
        return
    if served.process.poll() is None:
        assert served.stop() == 0, served.log
    else:
        served.assert_nothing_left({})
