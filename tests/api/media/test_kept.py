"""Files of requests lie with the requests, or go with their answers."""

import errno
from pathlib import Path

import pytest

from api.media.kept import PASSING, KeptFiles
from infra.errors import NotFound
from infra.file_store import FileStore
from infra.settings import Settings, load_settings


def settings_of(tmp_path: Path, payloads: str) -> Settings:
    return load_settings(home=tmp_path / "home", record={"payloads": payloads})


def put(kept: KeptFiles, data: bytes, *, job: bool = False) -> str:
    incoming = kept.begin(1000, 0, job=job)
    incoming.write(data)
    return kept.keep(incoming, job=job)


def found(kept: KeptFiles, ref: str) -> bool:
    for store in kept.blobs:
        try:
            with store.open(ref) as file:
                assert file.read() == store.get(ref)
        except NotFound:
            continue
        return True
    return False


def files(settings: Settings) -> list[Path]:
    return [path for path in settings.home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("payloads", ["all", "failed"])
def test_with_the_request_that_is_kept(tmp_path: Path, payloads: str) -> None:
    settings = settings_of(tmp_path, payloads)
    kept = KeptFiles(settings, recorded=True)
    ref = put(kept, b"sound")
    kept.leave(ref, job=False, keep=True)
    assert found(kept, ref)
    assert files(settings) == [settings.at("payloads", ref[7:9], ref[9:])]


@pytest.mark.parametrize(("payloads", "recorded"), [("none", True), ("all", False)])
def test_no_longer_than_the_request_that_is_not(tmp_path: Path, payloads: str, recorded: bool) -> None:
    settings = settings_of(tmp_path, payloads)
    kept = KeptFiles(settings, recorded=recorded)
    first, second = put(kept, b"sound"), put(kept, b"sound")
    assert first == second
    kept.leave(first, job=False, keep=True)
    assert found(kept, first)  # the other request needs it
    kept.leave(second, job=False, keep=True)
    assert not found(kept, first)
    assert not files(settings)


def test_a_job_s_file_lies_with_the_job(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "none")
    kept = KeptFiles(settings, recorded=True)
    ref = put(kept, b"sound", job=True)
    kept.leave(ref, job=True, keep=True)
    assert found(kept, ref)
    assert settings.at("jobs", ref[7:9], ref[9:]).is_file()


def test_what_an_earlier_front_left_is_removed(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "none")
    put(KeptFiles(settings, recorded=True), b"sound")
    assert files(settings)
    KeptFiles(settings, recorded=True)
    assert not [path for path in settings.at(PASSING).rglob("*") if path.is_file()]


def test_a_request_that_is_refused_takes_only_its_own_file_along(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "all")
    kept = KeptFiles(settings, recorded=True)
    kept.leave(put(kept, b"sound"), job=False, keep=True)
    for data in (b"sound", b"other"):
        kept.leave(put(kept, data), job=False, keep=False)
    assert [path.read_bytes() for path in files(settings)] == [b"sound"]


def test_of_two_requests_with_one_file_one_that_is_kept_is_enough(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "all")
    kept = KeptFiles(settings, recorded=True)
    first, second = put(kept, b"sound"), put(kept, b"sound")
    kept.leave(first, job=False, keep=True)
    kept.leave(second, job=False, keep=False)
    assert files(settings)


def stored(settings: Settings, data: bytes) -> tuple[str, Path]:
    """Content in another folder of the install."""
    other = FileStore(settings.at("files"))
    incoming = other.begin(1000)
    incoming.write(data)
    ref = incoming.seal().ref
    incoming.place()
    return ref, other.path(ref)


@pytest.mark.parametrize("job", [False, True])
def test_content_that_is_here_already_gets_a_second_name(tmp_path: Path, job: bool) -> None:
    settings = settings_of(tmp_path, "all")
    kept = KeptFiles(settings, recorded=True)
    ref, source = stored(settings, b"adapter")
    for _ in range(2):
        kept.link(ref, source, job=job)
    target = settings.at("jobs" if job else "payloads", ref[7:9], ref[9:])
    assert target.samefile(source)
    source.unlink()
    kept.leave(ref, job=job, keep=True)
    kept.leave(ref, job=job, keep=True)
    assert found(kept, ref)
    kept.link(ref, source, job=job)  # its own name is enough


def test_the_second_name_goes_with_a_request_that_is_not_kept(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "none")
    kept = KeptFiles(settings, recorded=True)
    ref, source = stored(settings, b"adapter")
    kept.link(ref, source, job=False)
    assert found(kept, ref)
    kept.leave(ref, job=False, keep=True)
    assert not found(kept, ref)
    assert source.read_bytes() == b"adapter"


def test_content_that_is_nowhere_is_said(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "all")
    kept = KeptFiles(settings, recorded=True)
    ref, source = stored(settings, b"adapter")
    source.unlink()
    with pytest.raises(NotFound, match="not kept any more"):
        kept.link(ref, source, job=False)
    again = put(kept, b"adapter")
    kept.leave(again, job=False, keep=False)
    assert not found(kept, ref)


def test_where_no_second_name_is_possible_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object, **_more: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    settings = settings_of(tmp_path, "all")
    kept = KeptFiles(settings, recorded=True)
    ref, source = stored(settings, b"adapter")
    monkeypatch.setattr("os.link", refused)
    kept.link(ref, source, job=False)
    target = settings.at("payloads", ref[7:9], ref[9:])
    assert target.read_bytes() == b"adapter"
    assert not target.samefile(source)
