"""The wheel: what is in it, and that `twistd` finds it from anywhere once it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from sysconfig import get_path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

from tests.support import ROOT, free_port

TWISTD = "import sys; sys.argv[0] = 'twistd'; from twisted.scripts.twistd import run; run()"


class Installed(NamedTuple):
    """A venv of its own, whose mqgateway comes from the wheel, and a directory far from ours."""

    wheel: Path
    python: Path
    elsewhere: Path

    def run(self, *command: str) -> str:
        """Its output, from a python that knows neither the checkout nor the test's own paths."""
        ended = subprocess.run(
            [str(self.python), *command],
            cwd=self.elsewhere,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        return ended.stdout

    def twistd(self, *arguments: str) -> str:
        return self.run("-c", TWISTD, *arguments)


def build_wheel(directory: Path) -> Path:
    """From a copy, so that no `build/` is left in the checkout and none left there gets in."""
    source = directory / "source"
    unwanted = shutil.ignore_patterns(
        *(".*", "build", "dist", "data", "*.egg-info", "__pycache__", "run-*")
    )
    shutil.copytree(ROOT, source, ignore=unwanted)
    # A plugin cache and a stray directory may well be there when somebody builds.
    (source / "twisted" / "plugins" / "dropin.cache").write_bytes(b"")
    assert (source / "tests").is_dir()
    assert (source / "bench").is_dir()
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "build",
                "--wheel",
                "--no-isolation",
                "--skip-dependency-check",
            ),
            *("--outdir", str(directory / "dist"), str(source)),
        ],
        check=True,
        capture_output=True,
    )
    (wheel,) = (directory / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    directory = tmp_path_factory.mktemp("packaging")
    wheel = build_wheel(directory)
    home = directory / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"),
            *("--python", str(python), "install", "--no-index", "--no-deps", str(wheel)),
        ],
        check=True,
        capture_output=True,
    )
    # The dependencies are those of the venv that runs this.  A path in a .pth file is only a path:
    # the .pth files in there, which name the checkout, are not looked at.
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(get_path("purelib") + "\n")
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    return Installed(wheel, python, elsewhere)


def test_the_wheel_has_the_packages_and_the_plugin(installed: Installed) -> None:
    """Every module of the gateway, and the one file that goes into Twisted's directory."""
    names = {*ZipFile(installed.wheel).namelist()}
    modules = {
        str(path.relative_to(ROOT))
        for package in ("gateway", "protocols", "spark")
        for path in (ROOT / package).rglob("*.py")
    }
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "gateway/web/page").iterdir()}
    assert "gateway/web/page/index.html" in page
    assert page <= names
    assert "protocols/qlite/server.py" in modules
    assert "spark/__init__.py" in modules
    assert modules | {"twisted/plugins/mqgateway_plugin.py"} <= names


def test_the_wheel_has_nothing_else(installed: Installed) -> None:
    """No tests, no bench, no plugin cache, and nothing that would hide Twisted itself."""
    names = ZipFile(installed.wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    ours = {"gateway", "mqgateway", "protocols", "pyspark_mqgateway", "spark"}
    assert tops == {*ours, "twisted"}
    plugins = [name for name in names if name.startswith("twisted")]
    assert plugins == ["twisted/plugins/mqgateway_plugin.py"]


def test_it_is_the_wheel_that_is_used(installed: Installed) -> None:
    """What the tests below import is in the new venv, and the checkout is on no path."""
    print_all = (
        "import sys, gateway, protocols.qlite, spark; "
        "print(gateway.__file__, protocols.qlite.__file__, spark.__file__, *sys.path, sep='\\n')"
    )
    gateway, protocol, spark, *paths = installed.run("-c", print_all).splitlines()
    home = installed.python.parent.parent
    for module in (gateway, protocol, spark):
        assert Path(module).is_relative_to(home)
    assert str(ROOT) not in paths


def test_twistd_lists_the_service_from_anywhere(installed: Installed) -> None:
    assert "mqgateway" in installed.twistd("--help")


def test_twistd_lists_the_reactor_from_anywhere(installed: Installed) -> None:
    listed = installed.twistd("--help-reactors")
    assert [line.split()[0] for line in listed.splitlines() if "uvloop" in line] == ["uvloop"]


def test_twistd_knows_its_options_from_anywhere(installed: Installed) -> None:
    shown = installed.twistd("mqgateway", "--help")
    assert "--config=" in shown
    assert "--check-config" in shown


@pytest.mark.parametrize("reactor", ["uvloop", "epoll"])
def test_it_can_be_made_from_anywhere(installed: Installed, reactor: str) -> None:
    """A configuration is checked with either reactor: every module that it takes is installed."""
    config = installed.elsewhere / "gateway.yaml"
    config.write_text(
        f"listeners: [{{protocol: qlite, endpoint: 'tcp:{free_port()}:interface=127.0.0.1'}}]\n"
    )
    arguments = ("mqgateway", "--config", "gateway.yaml", "--check-config")
    assert installed.twistd(f"--reactor={reactor}", *arguments) == "gateway.yaml is right\n"
