"""The dashboard in a real browser, against a real gateway."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from tests.integration.peers import QlitePeer
from tests.support import free_port, read_exactly, running

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
TOKEN = "a-token-that-only-tests-know"
SINK_TOKEN = "another-that-only-tests-know"
SPARK_SECONDS = 240.0  # that Spark has to start, and to answer
SECONDS = 60.0  # that the page has to show something; the machine may be busy
EVIL = '<img src=x onerror="document.title=1"><b>bold</b>'
FITS = """return [...document.querySelectorAll('.chart:not([hidden])')].every((chart) =>
    Math.abs(chart.querySelector('.main-svg').clientWidth - chart.clientWidth) < 2)"""
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1280,1500"),
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromium or chromedriver is not installed"
)


class Gateway:
    """A real gateway with a dashboard, and whoever posts to it."""

    def __init__(self, directory: Path, **more: Any) -> None:
        self.web, self.qlite = free_port(), free_port()
        self.config = directory / "gateway.yaml"
        listener = {"protocol": "qlite", "endpoint": f"tcp:{self.qlite}:interface=127.0.0.1"}
        web = {"endpoint": f"tcp:{self.web}:interface=127.0.0.1", "token": TOKEN}
        users = [{"name": "pub", "password": "publisher", "publisher": True}]
        content = {"listeners": [listener], "web": web, "users": users, **more}
        self.config.write_text(yaml.safe_dump(content))
        self.config.chmod(0o600)

    def post(self, path: str, content: dict[str, Any]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.web, timeout=20)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(content), headers)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (204, b"")
        connection.close()

    def results(self, job: str, rows: list[dict[str, Any]], *keys: str, order: str = "") -> None:
        content = {"job": job, "batch": 1, "keys": keys, "order": order or None, "rows": rows}
        self.post("/api/results", {**content, "replace": not keys, "time": time.time()})

    def query(self, job: str, **content: Any) -> None:
        self.post("/api/queries", {"job": job, "time": time.time(), **content})


class Page:
    """What a person sees."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self.browser = browser
        self.url = url
        self.seconds = SECONDS

    def open(self) -> None:
        self.browser.get(self.url)
        self.until(lambda: self.text("#state") == "running", "the gateway's state")

    def text(self, selector: str) -> str:
        """The text of an element now, or nothing; a page that draws may replace it meanwhile."""
        script = "return document.querySelector(arguments[0])?.textContent ?? ''"
        found: str = self.browser.execute_script(script, selector)
        return found

    def value(self, job: str, name: str) -> str:
        return self.text(f'[data-job="{job}"] [data-value="{name}"]')

    def until(self, condition: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + self.seconds
        while not condition():
            if time.monotonic() > end:
                shown = self.browser.find_element(By.TAG_NAME, "body").text
                raise AssertionError(f"the page does not show {what}; it shows:\n{shown}")
            time.sleep(0.1)

    def until_shown(self, job: str, name: str, text: str) -> None:
        self.until(lambda: self.value(job, name) == text, f"{job} {name} {text}")

    def picture(self, path: Path, width: int, height: int, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        wide = "return document.documentElement.scrollWidth <= innerWidth"
        self.until(lambda: self.browser.execute_script(wide), f"itself in {width} pixels")
        wanted = {"dark": "rgb(18, 21, 28)", "light": "rgb(244, 245, 248)"}[scheme]
        colour = "return getComputedStyle(document.body).backgroundColor"
        self.until(lambda: self.browser.execute_script(colour) == wanted, f"itself in {scheme}")
        time.sleep(1.5)  # for the picture alone: charts are drawn again within a second
        assert self.browser.save_screenshot(str(path))
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]  # type: ignore[no-untyped-call]

    def fetched(self) -> list[str]:
        script = "return performance.getEntriesByType('resource').map((entry) => entry.name)"
        found: list[str] = self.browser.execute_script(script)
        return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options, Service(str(DRIVER)))
    yield browser
    browser.quit()


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path)


@pytest.fixture
def page(browser: Chrome, gateway: Gateway) -> Iterator[Page]:
    page = Page(browser, f"http://127.0.0.1:{gateway.web}/")
    browser.get_log("browser")  # type: ignore[no-untyped-call]
    yield page
    browser.get("about:blank")


def post_everything(gateway: Gateway) -> None:
    """What all jobs may say of five minutes."""
    start = time.time() // 5 * 5 - 300
    windows = [start + 5 * number for number in range(60)]
    gateway.results(
        "rates",
        [
            {"window_start": window, "protocol": protocol, "address": "queue:jobs"}
            | {"accepted": 50 + 10 * (number % 7), "delivered": 40, "bytes": 4096}
            for number, window in enumerate(windows)
            for protocol in ("awcs", "mqserver", "qlite", "rq", "sk2mq")
        ],
        *("window_start", "protocol", "address"),
        order="window_start",
    )
    gateway.results(
        "latency",
        [
            {"window_start": window, "protocol": "qlite", "until": "delivered", "count": 50}
            | {"p50": 0.001, "p95": 0.004 + 0.0005 * (number % 5), "p99": 0.0125}
            for number, window in enumerate(windows)
        ],
        *("window_start", "protocol", "until"),
        order="window_start",
    )
    gateway.results("sizes", [{"bucket": 4**n, "messages": 3**n} for n in range(2, 9)])
    names = [EVIL, "pub", "a-sender-with-quite-a-long-name-indeed", *"cdefgh"]
    gateway.results(
        "top",
        [
            {"what": what, "name": prefix + name, "messages": 900 - 100 * number, "bytes": 1 << 20}
            for what, prefix in (("sender", ""), ("address", "queue:"))
            for number, name in enumerate(names)
        ],
    )
    gateway.results(
        "refusals",
        [
            {"event": "refused", "protocol": "qlite", "reason": "QueueFull", "count": 7},
            {"event": "dropped", "protocol": "rq", "reason": "consumer left", "count": 3},
        ],
    )
    gateway.results(
        "sessions",
        [
            {"protocol": "qlite", "user": "pub", "client": f"127.0.0.1:{5000 + n}"}
            | {"started": start + n, "ended": start + n + 9 if n % 3 else None, "seconds": 9.0}
            | ({"state": "lost", "seconds": None} if n == 8 else {"state": "closed"})
            for n in range(9)
        ],
        *("client", "started"),
        order="started",
    )


def test_what_spark_posts_is_what_the_page_shows(
    gateway: Gateway, page: Page, tmp_path: Path
) -> None:
    """Every job's numbers, then newer ones in their place; names from messages stay text; nothing
    is fetched from elsewhere, and the browser has nothing to complain of."""
    with running(gateway.config, gateway.web):
        page.open()
        page.until(lambda: "No messages yet" in page.text("#card-rates"), "that it is empty")
        assert "Spark is not running" in page.text("#card-latency")
        page.picture(tmp_path / "empty.png", 1280, 1500, "light")
        post_everything(gateway)
        for job in ("rates", "latency", "top", "sizes", "refusals", "sessions"):
            gateway.query(
                job, state="running", batch=12, rows=512, rows_per_second=511.0, batch_seconds=0.31
            )
        page.until_shown("rates", "accepted", "23,700")
        page.until_shown("rates", "delivered", "12,000")
        page.until_shown("latency", "p99", "12.5 ms")
        page.until_shown("sizes", "messages", "9,837")
        page.until_shown("top", "first-sender", EVIL)
        page.until_shown("top", "first-sender-messages", "900")
        page.until_shown("refusals", "count", "10")
        page.until_shown("sessions", "open", "3")
        page.until_shown("sessions", "ended", "5")
        page.until_shown("sessions", "lost", "1")
        page.until(lambda: page.text("#spark") == "6 of 6", "that six queries run")
        drawn = "return document.querySelectorAll('.chart .main-svg').length"
        page.until(lambda: page.browser.execute_script(drawn) >= 5, "its charts")
        page.until(lambda: page.browser.execute_script(FITS), "charts as wide as their cards")
        page.picture(tmp_path / "light.png", 1280, 1900, "light")
        page.picture(tmp_path / "dark.png", 1280, 1900, "dark")
        page.picture(tmp_path / "phone.png", 390, 3600, "dark")
        gateway.results("sizes", [{"bucket": 16, "messages": 5}])
        page.until_shown("sizes", "messages", "5")
        gateway.query("rates", state="failed", error="it broke")
        failed = '#card-queries .pill[data-state="failed"]'
        page.until(lambda: page.text(failed) == "failed", "that a query failed")
        assert "it broke" in page.text("#card-queries")
        inside = "return document.querySelectorAll('.card img, .card b b').length"
        assert page.browser.execute_script(inside) == 0
        assert page.browser.title == "mqgateway"
        assert page.complaints() == []
        fetched = page.fetched()
        assert any(name.endswith("plotly.min.js") for name in fetched)
        assert [name for name in fetched if not name.startswith(page.url)] == []


def test_the_tiles_follow_real_traffic_and_a_gateway_that_goes_and_comes_back(
    gateway: Gateway, page: Page
) -> None:
    """Connections and sequences are those of the gateway; when it is gone the page says so, and
    when it is back the page goes on by itself."""
    with running(gateway.config, gateway.web) as process:
        page.open()
        page.until(lambda: page.text("#connections") == "0", "no connection")
        with socket.create_connection(("127.0.0.1", gateway.qlite), 20) as client:
            assert read_exactly(client, 30)
            page.until(lambda: page.text("#connections-by") == "qlite 1", "one connection")
            page.until(lambda: page.text("#newest") not in ("–", "0", "1"), "a new sequence")
        page.until(lambda: page.text("#connections") == "0", "that it has gone")
        assert page.complaints() == []
        assert process.stop() == 0
        page.until(lambda: page.text("#state") == "connection lost", "that the gateway is gone")
        assert "does not answer" in page.text("#banner")
    with running(gateway.config, gateway.web):
        page.until(lambda: page.text("#state") == "running", "that the gateway is back")
        assert page.text("#banner") == ""


def test_it_can_be_used_with_the_keyboard_alone(gateway: Gateway, page: Page) -> None:
    """The first stop is a link past the header, and what has focus can be seen."""
    from selenium.webdriver.common.keys import Keys

    with running(gateway.config, gateway.web):
        page.open()
        page.browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        focused = page.browser.switch_to.active_element
        assert focused.text == "Skip to the charts"
        assert focused.rect["x"] >= 0
        assert focused.value_of_css_property("outline-style") != "none"
        focused.send_keys(Keys.ENTER)
        assert page.browser.switch_to.active_element.get_attribute("id") == "main"


@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_a_message_is_found_by_spark_and_seen_on_the_page(browser: Chrome, tmp_path: Path) -> None:
    """The gateway starts Spark itself: three messages are pushed, and the page says three.  Spark
    has two tokens, one for the log and one for the page, and no log shows either.  When the
    gateway ends, so does Spark, even if it is killed."""
    replay = f"tcp:{free_port()}:interface=127.0.0.1"
    spark = {"enabled": True, "master": "local[1]", "jobs": ["rates", "top"]}
    sink = {"replay": replay, "token": SINK_TOKEN}
    gateway = Gateway(tmp_path, sink=sink, spark=spark)
    page = Page(browser, f"http://127.0.0.1:{gateway.web}/")
    page.seconds = SPARK_SECONDS
    with running(gateway.config, gateway.web) as process:
        page.open()
        client = QlitePeer(gateway.qlite, "pub")
        for _ in range(3):
            assert client.ask(b"PUSH;hello").startswith(b"PASS;")
        page.until(lambda: page.text("#waiting") == "3", "that three messages wait")
        page.until(lambda: page.text("#spark") == "2 of 2", "that both queries run")
        page.until_shown("rates", "accepted", "3")
        page.until_shown("top", "first-sender-messages", "3")
        client.close()
        assert page.complaints() == []
        page.picture(tmp_path / "spark.png", 1280, 1900, "light")
        children = descendants(process.process.pid)
        assert children
        assert process.stop() == 0
        page.until(lambda: not any(map(is_running, children)), "that Spark has ended")
    with running(gateway.config, gateway.web) as process:
        page.until(lambda: any(map(is_java, descendants(process.process.pid))), "Spark again")
        children = descendants(process.process.pid)
        process.kill()
        page.until(lambda: not any(map(is_running, children)), "that Spark has ended, too")
    said = process.log.read_text()
    assert TOKEN not in said
    assert SINK_TOKEN not in said
    browser.get("about:blank")


def descendants(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread may have ended meanwhile
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def is_java(pid: int) -> bool:
    try:
        return "java" in Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False


def is_running(pid: int) -> bool:
    """Whether it is there, and more than the memory of one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False
