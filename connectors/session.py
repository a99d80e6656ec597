"""A Spark session on this machine, set up for `format("isthmus")`: quiet, bounded, and with the settings that matter.

What Spark does by default costs 50 ms a Python task and two small files a checkpoint entry; the settings below were
measured one by one. It is one way to begin: the data source works in any session.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess  # allowed: asks Java for its version, once, before there is a session
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import SessionError

JAVA_LEAST = 17
TMP = "spark-tmp"
SOCKET_PATH_MAX_BYTES = 107 - len("/.00000000-0000-0000-0000-000000000000.sock")  # of sun_path, Linux
INSTALL = f"install one, on Debian or Ubuntu by 'apt install openjdk-{JAVA_LEAST}-jre-headless', or set JAVA_HOME"

LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.sources.name = org.apache.spark.sql.execution.datasources.DataSourceManager
logger.sources.level = warn
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def local_session(
    name: str,
    folder: str | Path,
    *,
    cores: int | None = None,
    memory_mb: int = 1024,
    brief: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Any:  # a SparkSession, which is imported once Java was found
    """The session of this process. Raises SessionError without a Java that Spark can run on.

    folder: for what Spark writes on the way; what a killed session left in it is removed first, so that two cannot
    share it. cores: tasks at a time, default all. memory_mb: of the JVM; Python workers come on top. brief: the session
    lives for a minute or two, so that Java's second compiler would cost more than it gains. settings: more, or others.
    """
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # or Spark looks for data sources in the PATH's python3
    folder = Path(folder).resolve()
    shutil.rmtree(folder / TMP, ignore_errors=True)
    (folder / TMP).mkdir(parents=True)
    (folder / "log4j2.properties").write_text(LOGGING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName(name).master(f"local[{cores or '*'}]")
        chosen = defaults(folder, cores or os.cpu_count() or 1, memory_mb, brief)
        for option, value in {**chosen, **(settings or {})}.items():
            builder = builder.config(option, value)
        return builder.getOrCreate()


def defaults(folder: Path, cores: int, memory_mb: int, brief: bool = False) -> dict[str, str]:
    """Settings of a local session, each of which may be set otherwise."""
    tmp = str(folder / TMP)
    logging = (folder / "log4j2.properties").as_uri()
    java = [f"-Djava.io.tmpdir={tmp}", f"-Dlog4j2.configurationFile={logging}", "-XX:+UseSerialGC"]
    if brief:
        java.append("-XX:TieredStopAtLevel=1")
    found = {
        "spark.driver.memory": f"{memory_mb}m",
        "spark.driver.extraJavaOptions": shlex.join(java),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": tmp,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",  # two more files for each file of a checkpoint
        "spark.python.daemon.module": "isthmus.connectors.daemon",
    }
    if len(os.fsencode(tmp)) <= SOCKET_PATH_MAX_BYTES:
        found["spark.python.unix.domain.socket.enabled"] = "true"
        found["spark.python.unix.domain.socket.dir"] = tmp
    return found


def check_java() -> None:
    """SessionError that says what to install unless JAVA_HOME's, else PATH's, Java is one that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    asked = [command, "-version"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)  # allowed: as above
    except OSError:
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise SessionError(f"Spark needs Java {JAVA_LEAST} or later, but {where}: {INSTALL}") from None
    said = f"{answer.stderr}{answer.stdout}"
    version = re.search(r'version "(?:1\.)?(\d+)', said)  # Java 8 calls itself 1.8
    if not version or int(version[1]) < JAVA_LEAST:
        found = shutil.which(command) or command
        line = said.strip().splitlines()[0] if said.strip() else f"exit code {answer.returncode}"
        raise SessionError(f"Spark needs Java {JAVA_LEAST} or later, but {found} is {line}: {INSTALL}")
