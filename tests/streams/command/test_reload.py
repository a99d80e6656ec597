"""`worker --reload` of an app that cannot be loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_syntax_error_is_shown_and_waited_for(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("from isthmus.streams import App\napp = App('shop')\nfrom . import part\n")
    part = package / "part.py"
    part.write_text("def (\n")
    command = [sys.executable, "-u", "-m", "isthmus.streams", "-A", "shop:app", "worker", "--reload", "--without-web"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "starts again when a file has changed" in line:
                part.write_text("print('the new file')\nraise SystemExit(0)\n")
        assert process.wait(30) == 0
    assert "part.py:1: SyntaxError" in said and "the new file" in said
