from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nearsay.runtime.config import ConfigError, ServiceConfig, load_config, redacted
from nearsay.wire.limits import LinkLimits


class DemoConfig(ServiceConfig, frozen=True, kw_only=True):
    port: int = 8100
    name: str
    models: tuple[Path, ...] = ()
    urls: list[str] = []  # noqa: RUF012 - msgspec copies it
    ratio: float = 0.5
    verbose: bool = False
    api_keys: tuple[str, ...] = ()
    link: LinkLimits = LinkLimits()


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "demo.toml"
    path.write_text(text)
    return path


def test_defaults_file_environment_and_overrides_in_that_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, 'name = "file"\nport = 1\nratio = 0.25\nhost = "::1"\n[link]\nstreams_max = 7\n')
    monkeypatch.setenv("NEARSAY_DEMO_PORT", "2")
    monkeypatch.setenv("NEARSAY_DEMO_RATIO", "0.75")
    config = load_config(path, DemoConfig, {"port": 3, "link.links_max": "9"})
    assert config == DemoConfig(
        name="file", port=3, ratio=0.75, host="::1", link=LinkLimits(streams_max=7, links_max=9)
    )
    assert config.drain_timeout_s == 20.0


def test_strings_become_the_fields_type() -> None:
    overrides = {
        "name": "[not json]",
        "models": "a/b, c",
        "urls": '["ws://x/link", "ws://y,z/link"]',
        "verbose": "true",
        "port": "0",
    }
    config = load_config(None, DemoConfig, overrides)
    assert config.name == "[not json]"
    assert config.models == (Path("a/b"), Path("c"))
    assert config.urls == ["ws://x/link", "ws://y,z/link"]
    assert config.verbose is True and config.port == 0


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, 'prot = 1\nratio = "much"\n[link]\nstream_max = 1\nlinks_max = "x"\n')
    with pytest.raises(ConfigError) as caught:
        load_config(path, DemoConfig)
    told = "\n".join(sorted(caught.value.problems))
    assert told == "\n".join(
        [
            "'link.links_max': Expected `int`, got `str`",
            "'name' is missing",
            "'ratio': Expected `float`, got `str`",
            "unknown key 'link.stream_max' (did you mean 'streams_max'?)",
            "unknown key 'prot' (did you mean 'port'?)",
        ]
    )


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"port": "many"}, "'port'"),
        ({"verbose": "perhaps"}, "'verbose'"),
        ({"models": 5}, "'models'"),
        ({"models": [5]}, "'models'"),
        ({"urls": "[1"}, "'urls'"),
        ({"link": 5}, "'link'"),
        ({"link.ping_interval_s": 100}, "link"),
        ({"nobody.knows": 1}, "unknown key 'nobody'"),
    ],
)
def test_a_wrong_value_is_told_by_name(overrides: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, DemoConfig, {"name": "x", **overrides})
    assert len(caught.value.problems) == 1 and problem in caught.value.problems[0]


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml"):
        load_config(tmp_path / "gone.toml", DemoConfig, {"name": "x"})
    with pytest.raises(ConfigError, match=r"demo\.toml"):
        load_config(written(tmp_path, "name = "), DemoConfig, {"name": "x"})


def test_a_config_is_frozen() -> None:
    config = load_config(None, DemoConfig, {"name": "x"})
    with pytest.raises(AttributeError):
        config.port = 1  # type: ignore[misc]


def test_secrets_are_starred_out() -> None:
    config = DemoConfig(name="monkey", secret="s3", api_keys=("k",), models=(Path("m"),))
    shown = redacted(config)
    assert shown["secret"] == "***" and shown["api_keys"] == "***"
    assert shown["name"] == "monkey" and list(shown["models"]) == ["m"]
    assert redacted(msgspec.structs.replace(config, secret=""))["secret"] == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", "99999"),
        ("port", "-1"),
        ("admin_port", 70_000),
        ("drain_timeout_s", "nan"),
        ("keepalive_timeout_s", "-1"),
        ("log_level", "loud"),
    ],
)
def test_values_that_no_service_can_run_with_are_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"'{key}'"):
        load_config(None, ServiceConfig, {key: value})
