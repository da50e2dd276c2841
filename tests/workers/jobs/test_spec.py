import subprocess
import sys

from infra.settings import INTERNAL_TOKEN_VARIABLE, load_settings
from workers.jobs.spec import worker_spec

URL = "http://127.0.0.1:4200"


def test_it_knows_where_prefect_is_and_the_home() -> None:
    settings = load_settings()
    spec = worker_spec(settings, URL, "token")
    assert spec.name == "worker"
    assert spec.argv[-2:] == ("-m", "api.worker")
    assert spec.env["PREFECT_API_URL"] == f"{URL}/flows/api"
    assert spec.env["CODERAI_HOME"] == str(settings.home)


def test_its_secrets_are_told_apart() -> None:
    spec = worker_spec(load_settings(), URL, "token")
    assert set(spec.secret_env) == {"PREFECT_API_AUTH_STRING", INTERNAL_TOKEN_VARIABLE}
    assert not [value for value in spec.env.values() if value in spec.secret_env.values()]
    assert "token" not in repr(spec)


def test_nothing_of_prefects_is_pickled() -> None:
    env = worker_spec(load_settings(), URL, "token").env
    assert env["PREFECT_RESULTS_PERSIST_BY_DEFAULT"] == "false"
    assert env["PREFECT_RESULTS_DEFAULT_SERIALIZER"] == "json"


def test_whoever_asks_for_it_needs_no_prefect() -> None:
    code = "import sys, workers.jobs.spec; print(any(name.split('.')[0] == 'prefect' for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
