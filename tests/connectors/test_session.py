"""What a session needs and says when it is not there; no session is started here."""

import os
import shlex
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from isthmus.connectors.errors import SessionError
from isthmus.connectors.session import TMP, check_java, defaults


def java(folder, says):
    """A `java` that says this; its folder is the PATH."""
    folder.joinpath("bin").mkdir()
    command = folder / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    command.chmod(0o755)
    return folder


def test_no_java_on_the_path_is_one_clear_line(monkeypatch, tmp_path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SessionError) as caught:
        check_java()
    assert str(caught.value) == (
        "Spark needs Java 17 or later, but there is none on the PATH: install one, on Debian or Ubuntu by "
        "'apt install openjdk-17-jre-headless', or set JAVA_HOME"
    )


def test_a_java_home_without_java_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SessionError, match=f"JAVA_HOME={tmp_path} has none"):
        check_java()


@pytest.mark.parametrize("says", ['openjdk version "11.0.2" 2019-01-15', 'java version "1.8.0_392"', "no such thing"])
def test_an_old_java_is_named_with_its_version(monkeypatch, tmp_path, says):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, says)))
    with pytest.raises(SessionError) as caught:
        check_java()
    assert says in str(caught.value) and "openjdk-17-jre-headless" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("says", ['openjdk version "17.0.9" 2023-10-17', 'openjdk version "25" 2025-09-16'])
def test_a_new_enough_java_passes(monkeypatch, tmp_path, says):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, says)))
    check_java()


def test_unix_sockets_are_used_where_their_paths_fit(tmp_path):
    short, long = defaults(tmp_path.__class__("/tmp/a"), 2, 512), defaults(tmp_path / ("x" * 100), 2, 512)
    assert short["spark.python.unix.domain.socket.dir"] == os.path.join("/tmp/a", TMP)
    assert "spark.python.unix.domain.socket.enabled" not in long


def test_a_brief_session_leaves_out_the_second_compiler(tmp_path):
    assert "TieredStopAtLevel" in defaults(tmp_path, 2, 512, brief=True)["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel" not in defaults(tmp_path, 2, 512)["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("folder", ["/tmp/a", "/tmp/two words", "/tmp/it's", '/tmp/a "b"'])
def test_a_folder_of_any_name_is_one_word_to_java(folder):
    told = shlex.split(defaults(Path(folder), 2, 512)["spark.driver.extraJavaOptions"])
    assert [word.split("=")[0] for word in told] == [
        "-Djava.io.tmpdir",
        "-Dlog4j2.configurationFile",
        "-XX:+UseSerialGC",
    ]
    assert told[0].endswith(f"={folder}/{TMP}")
    assert url2pathname(urlsplit(told[1].split("=")[1]).path) == f"{folder}/log4j2.properties"
