"""Where tests run: what the variable says, what is there, and why, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from isthmus.deploy import engine
from isthmus.testing import IsthmusContainer, IsthmusTopology, choice
from isthmus.testing.choice import Backend, Choice, choose, require_docker
from isthmus.testing.errors import IsthmusTestingError

VERSION = engine.EngineVersion("24.0.1", "24.0.1", "1.43", "linux", "amd64")


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    choice._found.cache_clear()
    yield
    choice._found.cache_clear()


def pretend(monkeypatch: pytest.MonkeyPatch, said: str | None = None, image: bool = True, package: bool = True) -> None:
    """said: what the engine's lack is called; None: it runs."""

    def refuse(*_: object) -> engine.EngineVersion:
        if said:
            raise engine.EngineError(said)
        return VERSION

    def no_image(name: str = engine.IMAGE) -> None:
        if not image:
            raise engine.EngineError(f"there is no image {name}: build it with `isthmus image build`")

    monkeypatch.setattr(engine, "require", refuse)
    monkeypatch.setattr(engine, "has_image", lambda name: image)
    monkeypatch.setattr(engine, "require_image", no_image)
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: package or None)


@pytest.mark.parametrize(
    ("text", "backend"), [("docker", Backend.DOCKER), ("local", Backend.LOCAL), (" Local ", "local")]
)
def test_the_variable_decides_and_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch, text: str, backend: Backend
) -> None:
    monkeypatch.setattr(engine, "require", lambda: pytest.fail("the engine was asked"))
    assert choose({"ISTHMUS_TESTING": text}) == Choice(Backend(backend), f"ISTHMUS_TESTING={backend}")


@pytest.mark.parametrize("text", ["dokcer", "1", "podman"])
def test_any_other_value_is_an_error_that_names_both(text: str) -> None:
    with pytest.raises(IsthmusTestingError, match=f"^ISTHMUS_TESTING={text} is neither docker nor local: set one of"):
        choose({"ISTHMUS_TESTING": text})


def test_docker_where_an_engine_answers_and_has_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    assert str(choose({})) == f"docker: Docker 24.0.1 answers and has {engine.IMAGE}"
    assert choose({"ISTHMUS_TESTING": ""}).backend is Backend.DOCKER


def test_local_without_an_engine_and_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, "no Docker engine runs: start it")
    assert str(choose({})) == "local: no Docker engine runs: start it"


def test_local_without_the_image_and_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, image=False)
    assert str(choose({})) == f"local: Docker runs but has no image {engine.IMAGE}; `isthmus image build` makes it"


def test_local_without_testcontainers(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, package=False)
    assert choose({}).backend is Backend.LOCAL
    assert "pip install 'isthmus[testing]'" in choose({}).reason


def test_the_engine_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    choose({})
    monkeypatch.setattr(engine, "require", lambda: pytest.fail("the engine was asked again"))
    assert choose({}).backend is Backend.DOCKER


@pytest.mark.parametrize(
    ("lack", "words"),
    [
        ({"said": "no rights to Docker's engine: run as root"}, "no rights to Docker's engine: run as root; or set "),
        ({"image": False}, f"there is no image {engine.IMAGE}: build it with `isthmus image build`; or set "),
        ({"package": False}, "the package testcontainers is not installed: `pip install 'isthmus[testing]'`, or set "),
    ],
)
def test_what_docker_lacks_when_it_must_be_docker_is_one_line_with_two_ways_out(
    monkeypatch: pytest.MonkeyPatch, lack: dict[str, object], words: str
) -> None:
    pretend(monkeypatch, **lack)  # type: ignore[arg-type]
    with pytest.raises(IsthmusTestingError) as caught:
        require_docker(engine.IMAGE)
    assert str(caught.value).startswith(words + "ISTHMUS_TESTING=local")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("start", [IsthmusContainer, lambda: IsthmusTopology("name: x\ndatacenters: {a: {}}").start()])
def test_a_missing_package_is_said_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], object]
) -> None:
    pretend(monkeypatch, package=False)
    monkeypatch.setenv("ISTHMUS_TESTING", "docker")
    with pytest.raises(IsthmusTestingError, match="the package testcontainers is not installed: "):
        start()


def test_nothing_is_refused_where_docker_has_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    require_docker(engine.IMAGE)
