"""Tests for the settings of an sk2mq listener, as the configuration has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import ConfigErrors, load
from gateway.tap import PROTOCOLS


def settings(directory: Path, **given: Any) -> dict[str, Any]:
    path = directory / "gateway.yaml"
    stanza = {"protocol": "sk2mq", "endpoint": "tcp:0", **given}
    path.write_text(yaml.safe_dump({"listeners": [stanza]}))
    (listener,) = load(path, PROTOCOLS, lambda text: None).listeners
    return listener.settings


@pytest.mark.parametrize("dialect", ["seed", "upstream"])
def test_a_listener_has_one_dialect(tmp_path: Path, dialect: str) -> None:
    assert settings(tmp_path, dialect=dialect)["dialect"] == dialect


def test_a_dialect_that_is_none_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as errors:
        settings(tmp_path, dialect="downstream")
    assert errors.value.problems == ["listeners[0].dialect: must be one of seed, upstream"]
