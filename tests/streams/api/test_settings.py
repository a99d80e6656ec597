"""The settings of an app: names, defaults and units of Faust, and what is said of those that mean nothing here."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from isthmus.streams import App
from isthmus.streams.api.settings import IGNORED, REFUSED, RENAMED, Options, Settings, table
from isthmus.streams.errors import AppError


def conf(environment: dict[str, str] | None = None, **options: Any) -> Settings:
    return Settings("app", options, environment or {})


@pytest.mark.parametrize(
    ("said", "bootstrap"),
    [
        ("kafka://localhost", "localhost:9092"),
        ("kafka://a:9092;b:9093", "a:9092,b:9093"),
        ("kafka://a:9092;kafka://b", "a:9092,b:9092"),
        (["a:1", "kafka://b:2"], "a:1,b:2"),
        ("a:1,b:2", "a:1,b:2"),
        ("aiokafka://", "localhost:9092"),
        ("kafka://[::1]:9094/", "[::1]:9094"),
        ("[::1]", "[::1]:9092"),
    ],
)
def test_brokers_are_written_as_in_faust_and_as_kafka_s_tools_have_them(said: Any, bootstrap: str) -> None:
    assert conf(broker=said).bootstrap == bootstrap


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("broker", "redis://a:1", r"must begin with kafka://, aiokafka://, confluent://"),
        ("broker", "kafka://a:port", "must be HOST:PORT of each broker"),
        ("broker_commit_interval", "soon", "must be a number of seconds, or a timedelta"),
        ("broker_commit_interval", -1, "must not be negative"),
        ("version", 0, "must be 1 or more"),
        ("web_port", 70_000, "must be from 0 to 65535"),
        ("web_enabled", "maybe", "must be true or false"),
        ("timezone", "Mars/Olympus", "must be a time zone, such as Europe/Berlin"),
        ("store", "aerospike://", "must be memory:// or rocksdb://"),
        ("processing_guarantee", "exactly_twice", "must be one of at_least_once, exactly_once"),
    ],
)
def test_a_value_that_cannot_be_names_the_setting_and_what_can(option: str, value: Any, why: str) -> None:
    with pytest.raises(AppError, match=f"app app: {option} is .*, but {why}"):
        conf(**{option: value})


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(AppError, match="must have no user and password: the client has no SASL") as error:
        conf(broker="kafka://me:secret@a:9092")
    assert "secret" not in str(error.value)


def test_durations_are_seconds_or_timedeltas() -> None:
    assert conf(broker_commit_interval=timedelta(milliseconds=250)).broker_commit_interval == 0.25
    assert conf(broker_session_timeout=30).broker_session_timeout == 30.0
    assert conf(producer_linger_ms=20).producer_linger == 0.02


def test_the_interval_of_commits_follows_the_guarantee_unless_it_is_said() -> None:
    assert conf().broker_commit_interval == 0.5
    assert conf(processing_guarantee="exactly_once").broker_commit_interval == 0.1
    assert conf(processing_guarantee="exactly_once", broker_commit_interval=2).broker_commit_interval == 2.0


def test_the_environment_counts_before_the_program_with_its_prefix() -> None:
    assert conf({"WEB_PORT": "7000"}, web_port=1).web_port == 7000
    assert conf({"WEB_PORT": "7000", "MY_WEB_PORT": "7001"}, env_prefix="MY").web_port == 7001
    assert conf({"APP_ENV_PREFIX": "MY_", "MY_BROKER_URL": "kafka://b:1"}).bootstrap == "b:1"
    with pytest.raises(AppError, match="web_port is 'x'"):
        conf({"WEB_PORT": "x"})


def test_a_version_above_one_is_another_app_with_its_own_state() -> None:
    assert (conf().id, conf(version=1).id, conf(version=5).id) == ("app", "app", "app-v5")
    assert conf(version=2, id_format="{id}.{self.version}").id == "app.2"
    assert conf(version=5).tables_path == Path("app-data/v5/tables")
    assert conf(tabledir="/tables").tables_path == Path("/tables")
    assert App("app", version=5).changelog_topic("t") == "app-v5-t-changelog"


def test_a_setting_of_faust_that_means_nothing_is_taken_with_what_is_instead() -> None:
    assert conf(stream_buffer_maxsize=16_368).ignored == {"stream_buffer_maxsize": IGNORED["stream_buffer_maxsize"]}


def test_a_setting_that_promises_what_nothing_keeps_is_refused() -> None:
    with pytest.raises(AppError, match=r"app app: broker_credentials cannot be set: the client has no SASL"):
        conf(broker_credentials=object())


def test_an_unknown_setting_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(AppError, match=r"there is no setting web_prot: is it web_port\?"):
        conf(web_prot=1)


def test_settings_can_be_changed_and_none_is_the_default_again() -> None:
    settings = conf(web_port=1)
    settings.web_port = "2"  # type: ignore[assignment]
    assert settings.web_port == 2
    settings.web_port = None  # type: ignore[assignment]
    assert settings.web_port == 6066


def test_every_setting_stands_in_one_place_and_can_be_given() -> None:
    given = set(get_type_hints(Options))
    assert given == set(table())
    assert not set(table()) & (set(IGNORED) | set(REFUSED) | set(RENAMED))
    assert not set(IGNORED) & set(REFUSED)
    environment = [row.env for row in table().values() if row.env]
    assert len(environment) == len(set(environment))


def test_defaults_can_be_read_back() -> None:
    """A default goes through the same check as a value that is given."""
    for name in table():
        getattr(conf(), name)


def test_signals_of_the_configuration_come_before_the_first_use() -> None:
    app = App("app", web_port=1)
    seen: list[str] = []

    @app.on_before_configured.connect
    def before(app: App) -> None:
        seen.append("before")

    @app.on_configured.connect
    def configure(app: App, conf: Settings, **_: Any) -> None:
        seen.append("configured")
        conf.web_port = 2

    @app.on_after_configured.connect
    def after(app: App, **_: Any) -> None:
        seen.append("after")

    assert app.conf.web_port == 2
    app.finalize()
    assert seen == ["before", "configured", "after"]
    with pytest.raises(AppError, match=r"app.on_configured calls plain functions, and late is async"):

        @app.on_configured.connect
        async def late() -> None: ...


def test_settings_come_from_an_object_too() -> None:
    class Config:
        web_port = 3
        something_else = 1

    app = App("app")
    app.config_from_object(Config)
    assert app.conf.web_port == 3


def test_discovery_imports_packages_whole_and_names_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "found_by_discovery"
    (package / "below").mkdir(parents=True)
    for name in ("__init__", "agents", "test_agents", "__main__", "below/__init__", "below/pages"):
        (package / f"{name}.py").write_text(f"import builtins\nbuiltins.seen_by_discovery.append({name!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[str] = []
    monkeypatch.setattr("builtins.seen_by_discovery", seen, raising=False)
    App("app", autodiscover=True, origin="found_by_discovery").finalize()
    assert seen == ["__init__", "agents", "below/__init__", "below/pages"]
    with pytest.raises(AppError, match="autodiscover names module no_such_module_at_all, which does not exist"):
        App("app", autodiscover=lambda: ["no_such_module_at_all"]).finalize()
    with pytest.raises(AppError, match="autodiscover=True needs origin="):
        App("app", autodiscover=True).finalize()


def test_discovery_looks_into_installed_apps_of_django_but_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = '["django.contrib.auth", "accounts_of_django"]'
    for name, text in {
        "django/__init__": "import builtins\ndef setup(): builtins.seen_by_discovery.append('set up')",
        "django/apps": "from types import SimpleNamespace as Of\n"
        f"apps = Of(get_app_configs=lambda: [Of(name=name) for name in {names}])",
        "accounts_of_django/__init__": "",
        "accounts_of_django/a_broken": "raise RuntimeError('for others')",
        "accounts_of_django/agents": "import builtins\nbuiltins.seen_by_discovery.append('agents')",
        "of_the_project": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.py").write_text(text)
    for name in ("django", "django.apps"):
        monkeypatch.setitem(sys.modules, name, sys)  # so that what is there before is there after
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[str] = []
    monkeypatch.setattr("builtins.seen_by_discovery", seen, raising=False)
    App("app", autodiscover=True, origin="of_the_project").finalize()
    assert seen == []
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "of_the_project")
    App("app", autodiscover=["of_the_project"]).finalize()
    assert seen == ["set up"]
    App("app", autodiscover=True, origin="of_the_project").finalize()
    assert seen == ["set up", "set up", "agents"]
    assert [each.getMessage() for each in caplog.records] == [
        "accounts_of_django.a_broken cannot be imported: agents in it are not known"
    ]
