"""How a worker finds its app, and what it says of one that cannot run."""

from pathlib import Path

import pytest

from isthmus.streams.errors import AppError
from isthmus.streams.runtime.loader import find


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\nsyntax error(", r"app.py:2: SyntaxError: "),
        ("import no_such_module_at_all", r"app.py:1: ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("def f():\n    return 1 / 0\nf()", r"app.py:2: ZeroDivisionError: division by zero"),
        ("app = 1", "has no App called app"),
        (
            "from isthmus.streams import App\napp = App('a/b')",
            r"app.py:2: app id 'a/b' cannot be part of a topic's name",
        ),
        (
            "from isthmus.streams import App\nApp('a').stream('x').count",
            r"app.py:2: AttributeError: Source has no count",
        ),
        ("app = 1\0", r"app\.py:1: SyntaxError: source code"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_one_line_with_its_place(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ISTHMUS_DEBUG", raising=False)
    monkeypatch.setattr("sys.path", ["/"])
    (tmp_path / "app.py").write_text(text)
    with pytest.raises(AppError, match=said) as error:
        find(f"{tmp_path}/app.py:app")
    assert "\n" not in str(error.value)


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", ["/"])
    with pytest.raises(AppError, match=r"there is no file gone\.py"):
        find("gone.py:app")
    with pytest.raises(AppError, match=r"module no_such_package, which 'no_such_package\.app' imports, does not exist"):
        find("no_such_package.app:app")
    with pytest.raises(AppError, match=r"there is no file app\.py"):
        find("app.py")


@pytest.mark.parametrize("name", ["", ":", "..", "app.py:", "app.py:app:app", "app/:app", "app/shop.txt:app"])
def test_what_names_no_app_is_told_so(name: str) -> None:
    with pytest.raises(AppError, match=r"say path/to/file\.py:app, or module:app"):
        find(name)
