"""Paths that lead to the flow-run server, tricks that do not, and what of its API stays closed."""

from urllib.parse import unquote

import pytest

from api.admin.flows_paths import canonical, require_allowed
from infra.errors import Forbidden, InvalidRequest


@pytest.mark.parametrize(
    ("path", "passed_on"),
    [
        ("/flows/", "/flows/"),
        ("/flows/runs/flow-run/0f", "/flows/runs/flow-run/0f"),
        ("/flows/api/deployments/name/my flow/déjà", "/flows/api/deployments/name/my%20flow/d%C3%A9j%C3%A0"),
        ("/flows/api/work_pools/a?b#c", "/flows/api/work_pools/a%3Fb%23c"),
        ("/flows/api/tag/50%", "/flows/api/tag/50%25"),
        ("/flows/api/tag/a%20b", "/flows/api/tag/a%2520b"),
        ("/flows/.../x", "/flows/.../x"),
    ],
)
def test_a_path_arrives_as_it_was_looked_at(path: str, passed_on: str) -> None:
    assert canonical(path) == passed_on
    assert unquote(canonical(path)) == path


@pytest.mark.parametrize(
    "path",
    [
        "/flows/../admin",
        "/flows/..",
        "/flows/./x",
        "/flows/api/../../x",
        "/flows/%2e%2e/x",  # sent as %252e%252e
        "/flows/%252e%252e/x",
        "/flows/a%2f..%2fb",
        "/flows/..\\x",
        "/flows/%5c..",
        "/flows/a\r\nb",
        "/flows/%0d%0ab",
        "/flows/\x00",
        "/flowsx",
        "/login",
        "//flows/x",
        "",
    ],
)
def test_tricks_are_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        canonical(path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/flows/api/admin/version"),
        ("HEAD", "/flows/api/admin/settings"),
        ("GET", "/flows/api/admin/storage"),
        ("POST", "/flows/api/flow_runs/filter"),
        ("DELETE", "/flows/api/flow_runs/0f"),
        ("GET", "/flows/admin/database"),
    ],
)
def test_what_an_admin_may_do(method: str, path: str) -> None:
    require_allowed(method, path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/flows/api/admin/database/clear"),
        ("POST", "/flows/api/admin/database/drop"),
        ("POST", "/flows//api///admin/database/create"),
        ("GET", "/flows/api/admin"),
        ("GET", "/flows/api/admin/storage/x"),
        ("PUT", "/flows/api/admin/storage"),
        ("DELETE", "/flows/api/admin/storage"),
        ("POST", "/flows/api/coderai/record"),
        ("POST", "/flows/api/coderai/record/"),
    ],
)
def test_what_stays_closed(method: str, path: str) -> None:
    with pytest.raises(Forbidden):
        require_allowed(method, path)
