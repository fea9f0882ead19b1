"""The configuration: what it says, every mistake in it at once, and no password in any message."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from twisted.internet.endpoints import serverFromString
from twisted.internet.testing import MemoryReactorClock

from gateway.config import Config, ConfigErrors, SparkSettings, load
from gateway.interfaces import User
from gateway.store import Retention
from gateway.tap import PROTOCOLS
from tests.support import ROOT

EXAMPLE = ROOT / "etc" / "mqgateway.yaml"
SECRET = "hunter2"
USER = {"name": "pub", "password": SECRET, "publisher": True}
LISTENER = {"protocol": "qlite", "endpoint": "tcp:8080:interface=127.0.0.1"}
GOOD = {"users": [USER], "listeners": [LISTENER]}

WITH_SPARK = {
    **GOOD,
    "sink": {"replay": "tcp:7001"},
    "web": {"endpoint": "tcp:8000"},
    "spark": {"enabled": True},
}


def read(path: Path) -> Config:
    reactor = MemoryReactorClock()
    return load(path, PROTOCOLS, lambda text: serverFromString(reactor, text))


class Files:
    """A directory to put configurations in."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "gateway.yaml"

    def load(self, content: Any) -> Config:
        """Text as it is; anything else as YAML."""
        self.path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        self.path.chmod(0o600)
        return read(self.path)

    def problems(self, content: Any) -> list[str]:
        with pytest.raises(ConfigErrors) as caught:
            self.load(content)
        assert SECRET not in f"{caught.value!r} {caught.value}"
        assert all("\n" not in problem for problem in caught.value.problems)
        return caught.value.problems

    def write(self, name: str, text: str) -> None:
        path = self.path.parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def with_listener(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "listeners": [{**LISTENER, **changes}]}


def with_user(**changes: Any) -> dict[str, Any]:
    return {**GOOD, "users": [{**USER, **changes}]}


class TestWhatItSays:
    def test_two_listeners_may_not_share_what_is_for_one(self, files: Files) -> None:
        rooms = [{"protocol": "awcs", "endpoint": f"tcp:{port}"} for port in (5000, 5001)]
        problems = files.problems({**GOOD, "listeners": rooms})
        assert problems == ["listeners[1].hub: listeners[0] has 'awcs' too"]
        rooms[1]["hub"] = "other"
        assert len(files.load({**GOOD, "listeners": rooms}).listeners) == 2

    def test_what_is_not_said_has_its_default(self, files: Files) -> None:
        """A file that names only a listener and a user is complete."""
        config = files.load(GOOD)
        assert config.data == Path("data")
        assert config.durability == "full"
        assert config.retention == Retention(86_400, 1 << 30)
        assert config.sink_lines is None
        assert config.sink_buffer == 8 << 20
        assert config.warnings == []
        (listener,) = config.listeners
        assert listener.max_connections == 1000
        assert listener.accounts is None
        settings = PROTOCOLS["qlite"].settings
        assert listener.settings == {name: setting.default for name, setting in settings.items()}

    def test_what_is_said_counts(self, files: Files) -> None:
        """Every setting of the file is in the value that it becomes."""
        config = files.load(
            """
            data: /var/lib/mqgateway
            durability: normal
            retention: {seconds: 60, bytes: 1048576}
            users:
              - {name: pub, password: one, publisher: true}
              - {name: sub, password: two, subscriber: true}
            listeners:
              - protocol: qlite
                endpoint: tcp:8080
                maxConnections: 7
                queue: jobs
                maxMessages: 5
                maxIoTimeSeconds: 2
                users: [{name: both, password: three, publisher: true, subscriber: true}]
            sink: {lines: "tcp:7000", bufferBytes: 65536}
            """
        )
        assert config.data == Path("/var/lib/mqgateway")
        assert config.durability == "normal"
        assert config.retention == Retention(60, 1 << 20)
        assert [account.user for account in config.accounts] == [
            User("pub", publisher=True, subscriber=False),
            User("sub", publisher=False, subscriber=True),
        ]
        assert [account.password.reveal() for account in config.accounts] == [b"one", b"two"]
        (listener,) = config.listeners
        assert listener[:4] == ("listeners[0]", "qlite", "tcp:8080", 7)
        assert listener.accounts is not None
        assert [account.user.name for account in listener.accounts] == ["both"]
        assert listener.settings["queue"] == "jobs"
        assert listener.settings["maxMessages"] == 5
        assert listener.settings["maxIoTimeSeconds"] == 2.0
        assert type(listener.settings["maxIoTimeSeconds"]) is float
        assert (config.sink_lines, config.sink_buffer) == ("tcp:7000", 65536)

    def test_listeners_may_share_what_they_say(self, files: Files) -> None:
        """YAML's own way to say something once, with a merge key, works; what differs wins."""
        config = files.load(
            """
            users: [{name: pub, password: one, publisher: true}]
            listeners:
              - &first {protocol: qlite, endpoint: tcp:8080, queue: a, maxMessages: 5}
              - {<<: *first, endpoint: tcp:8081, queue: b}
            """
        )
        assert [listener.settings["queue"] for listener in config.listeners] == ["a", "b"]
        assert [listener.settings["maxMessages"] for listener in config.listeners] == [5, 5]

    def test_no_sink_is_said_with_null(self, files: Files) -> None:
        assert files.load({**GOOD, "sink": {"lines": None}}).sink_lines is None

    def test_the_web_and_spark_are_off_unless_they_are_asked_for(self, files: Files) -> None:
        config = files.load({**GOOD, "web": {"endpoint": None}, "spark": {"archive": "a"}})
        assert (config.web, config.spark) == (None, None)

    def test_what_is_said_of_the_web_and_of_spark_counts(self, files: Files) -> None:
        """Its checkpoint is with the data, and an archive is a job more."""
        token = "0123456789abcdef"
        web = {"endpoint": "tcp:8000", "token": token}
        spark = {"enabled": True, "master": "local[2]", "jobs": ["rates"], "archive": "old"}
        config = files.load({**WITH_SPARK, "data": "d", "web": web, "spark": spark})
        assert config.web is not None
        assert config.web.endpoint == "tcp:8000"
        assert config.web.token is not None
        assert config.web.token.reveal() == token.encode()
        assert token not in repr(config)
        jobs = ["rates", "archive"]
        assert config.spark == SparkSettings("local[2]", jobs, Path("d/spark"), Path("old"))


ENDPOINT = "listeners[0].endpoint: "
MISTAKES: dict[str, tuple[Any, str]] = {
    # name: the content, and how its only problem begins
    "unknown key": ({**GOOD, "listenres": []}, "listenres: unknown; known are data, durability"),
    "unknown key of a section": ({**GOOD, "sink": {"port": 1}}, "sink.port: unknown"),
    "unknown key of a listener": (with_listener(maxMesages=1), "listeners[0].maxMesages: unknown"),
    "unknown key of a user": (with_user(admin=True), "users[0].admin: unknown"),
    "key that is no text": ({**GOOD, 5: 6}, "5: unknown"),
    "no mapping": ("- a\n", "{file}: must be a mapping, not a list"),
    "text": ("hello", "{file}: must be a mapping, not text"),
    "empty file": ("", "listeners: must be there"),
    "no listeners": ({"users": [USER]}, "listeners: must be there"),
    "empty listeners": ({**GOOD, "listeners": []}, "listeners: must have at least one"),
    "listeners no list": ({**GOOD, "listeners": LISTENER}, "listeners: must be a list, not a map"),
    "listener no mapping": ({**GOOD, "listeners": ["x"]}, "listeners[0]: must be a mapping, not t"),
    "users no list": ({**GOOD, "users": USER}, "users: must be a list, not a mapping"),
    "user no mapping": ({**GOOD, "users": ["x"]}, "users[0]: must be a mapping, not text"),
    "section no mapping": ({**GOOD, "retention": 5}, "retention: must be a mapping, not a whole n"),
    "section left empty": ({**GOOD, "sink": None}, "sink: must be a mapping, not nothing"),
    "data no text": ({**GOOD, "data": 5}, "data: must be text, not a whole number"),
    "data empty": ({**GOOD, "data": ""}, "data: must not be empty"),
    "data no path": ({**GOOD, "data": "a\0b"}, "data: must not have characters that cannot be pr"),
    "durability": ({**GOOD, "durability": "safe"}, "durability: must be one of full, normal, mem"),
    "retention": ({**GOOD, "retention": {"seconds": 0}}, "retention.seconds: must be at least 1"),
    "retention without end": (
        {**GOOD, "retention": {"seconds": 10**400}},
        "retention.seconds: must be at most 4294967296",
    ),
    "sink": ({**GOOD, "sink": {"lines": "nowhere"}}, "sink.lines: 'nowhere' is no endpoint: "),
    "sink no text": ({**GOOD, "sink": {"lines": 7}}, "sink.lines: must be an endpoint such as tcp"),
    "web no mapping": ({**GOOD, "web": 8000}, "web: must be a mapping, not a whole number"),
    "web": ({**GOOD, "web": {"endpoint": "here"}}, "web.endpoint: 'here' is no endpoint: "),
    "web token short": ({**GOOD, "web": {"token": SECRET}}, "web.token: must be text of 16 or mo"),
    "web token odd": ({**GOOD, "web": {"token": "a b " * 9}}, "web.token: must be text of 16 or "),
    "spark without replay": (
        {**GOOD, "web": {"endpoint": "tcp:8000"}, "spark": {"enabled": True}},
        "spark.enabled: needs sink.replay to be a tcp: endpoint",
    ),
    "spark without web": (
        {**GOOD, "sink": {"replay": "tcp:7001"}, "spark": {"enabled": True}},
        "spark.enabled: needs web.endpoint to be a tcp: endpoint",
    ),
    "spark in memory": (
        {**WITH_SPARK, "durability": "memory"},
        "spark.enabled: needs the log on disk",
    ),
    "spark without jobs": ({**GOOD, "spark": {"jobs": []}}, "spark.jobs: must be names, such as r"),
    "spark job no name": ({**GOOD, "spark": {"jobs": ["a,b"]}}, "spark.jobs: must be names"),
    "spark archive nowhere": (
        {**GOOD, "spark": {"jobs": ["archive"]}},
        "spark.archive: must say where",
    ),
    "no protocol": (
        {**GOOD, "listeners": [{"endpoint": "tcp:1"}]},
        "listeners[0].protocol: must be one of qlite",
    ),
    "protocol unknown": (with_listener(protocol="amqp"), "listeners[0].protocol: must be one of q"),
    "protocol no text": (with_listener(protocol=["x"]), "listeners[0].protocol: must be one of q"),
    "number for text": (with_listener(queue=5), "listeners[0].queue: must be text, not a whole n"),
    "text for number": (
        with_listener(maxMessages="many"),
        "listeners[0].maxMessages: must be a whole number, not text",
    ),
    "true for number": (
        with_listener(maxConnections=True),
        "listeners[0].maxConnections: must be a whole number, not true or false",
    ),
    "fraction": (
        with_listener(maxMessages=1.5),
        "listeners[0].maxMessages: must be a whole number, not a number",
    ),
    "nothing": (with_listener(maxMessages=None), "listeners[0].maxMessages: must be a whole numbe"),
    "too little": (
        with_listener(maxConnections=0),
        "listeners[0].maxConnections: must be at least",
    ),
    "too much": (
        with_listener(maxPublisherConnections=65536),
        "listeners[0].maxPublisherConnections: must be at most 65535",
    ),
    "no number": (
        with_listener(maxIoTimeSeconds=float("nan")),
        "listeners[0].maxIoTimeSeconds: must be at least 0.001",
    ),
    "endless": (
        with_listener(maxIoTimeSeconds=float("inf")),
        "listeners[0].maxIoTimeSeconds: must be at most 3600",
    ),
    "too big for a float": (
        with_listener(maxIoTimeSeconds=10**400),
        "listeners[0].maxIoTimeSeconds: must be at most 3600",
    ),
    "user without name": (with_user(name=None), "users[0].name: must be there"),
    "name too long": (with_user(name="n" * 32), "users[0].name: must be up to 31 bytes"),
    "name with delimiter": (with_user(name="a;b"), "users[0].name: must be up to 31 bytes"),
    "name no UTF-8": (
        'users: [{name: "\\ud800", password: a, publisher: true}]\n'
        "listeners: [{protocol: qlite, endpoint: 'tcp:1'}]\n",
        "users[0].name: must be up to 31 bytes",
    ),
    "user twice": ({**GOOD, "users": [USER, USER]}, "users[1].name: there are two users 'pub'"),
    "listener's user twice": (
        with_listener(users=[USER, USER]),
        "listeners[0].users[1].name: there are two users 'pub'",
    ),
    "no password": (with_user(password=None), "users[0].password: must be there"),
    "password a number": (
        with_user(password=12345),
        "users[0].password: must be there, and be tex",
    ),
    "password too long": (with_user(password="p" * 72), "users[0].password: must be at most 71"),
    "password no UTF-8": (
        'users: [{name: a, password: "\\ud800", publisher: true}]\n'
        "listeners: [{protocol: qlite, endpoint: 'tcp:1'}]\n",
        "users[0].password: must be text that UTF-8 has",
    ),
    "role no truth": (
        with_user(subscriber="yes please"),
        "users[0].subscriber: must be true or false, not text",
    ),
    "no role": (with_user(publisher=False), "users[0]: is neither publisher nor subscriber"),
    "no endpoint": (
        {**GOOD, "listeners": [{"protocol": "qlite"}]},
        ENDPOINT + "must be an endpoint such as tcp:8080, not nothing",
    ),
    "endpoint no text": (with_listener(endpoint=8080), ENDPOINT + "must be an endpoint such as tc"),
    "endpoint empty": (
        with_listener(endpoint=""),
        ENDPOINT + "'' is no endpoint: Unknown endpoint",
    ),
    "endpoint of no kind": (
        with_listener(endpoint="carrier:pigeon"),
        ENDPOINT + "'carrier:pigeon' is no endpoint: Unknown endpoint type",
    ),
    "endpoint without port": (
        with_listener(endpoint="tcp"),
        ENDPOINT + "'tcp' is no endpoint: missing 1 required",
    ),
    "port no number": (
        with_listener(endpoint="tcp:http"),
        ENDPOINT + "'tcp:http' is no endpoint: invalid literal for int()",
    ),
    "port too big": (
        with_listener(endpoint="tcp:80800"),
        ENDPOINT + "'tcp:80800' is no endpoint: a port is at most 65535",
    ),
    "option of no endpoint": (
        with_listener(endpoint="tcp:80:colour=red"),
        ENDPOINT + "'tcp:80:colour=red' is no endpoint: got an unexpected keyword",
    ),
    "ssl without its file": (
        with_listener(endpoint="ssl:8443:privateKey=/nonexistent/key.pem"),
        ENDPOINT + "'ssl:8443:privateKey=/nonexistent/key.pem' is no endpoint: [Errno 2] No such",
    ),
    "ssl with a file that is no key": (
        with_listener(endpoint=f"ssl:8443:privateKey={EXAMPLE}"),
        ENDPOINT + f"'ssl:8443:privateKey={EXAMPLE}' is no endpoint: ",
    ),
    "systemd without activation": (
        with_listener(endpoint="systemd:domain=INET:index=0"),
        ENDPOINT + "'systemd:domain=INET:index=0' is no endpoint: no such socket was passed",
    ),
    "systemd without that name": (
        with_listener(endpoint="systemd:domain=INET:name=qlite"),
        ENDPOINT + "'systemd:domain=INET:name=qlite' is no endpoint: no such socket was passed",
    ),
    "key twice": (
        "listeners: [{protocol: qlite, endpoint: 'tcp:1'}]\ndata: a\ndata: b\n",
        "{file}:3:1: 'data' is there twice",
    ),
    "syntax": ("users: [\n", "{file}:2:1: "),
    "tab": ("users:\n\t- x", "{file}:2:1: found character '\\t' that cannot start any token"),
    "two documents": ("a: 1\n---\nb: 2\n", "{file}:2:1: but found another document"),
    "key of a strange kind": ("{[a]: b}", "{file}:1:2: found unhashable key"),
    "no date": ("data: 2024-13-32\n", "{file}:1:7: this cannot be read; if it is text, put it in"),
    "nested without end": ("[" * 5000, "{file}: nested too deeply"),
    "no characters": ("a: \0", "{file}: unacceptable character #x0000"),
    "itself": (
        "users: &a [*a]\nlisteners: [{protocol: qlite, endpoint: 'tcp:1'}]",
        "users[0]: mus",
    ),
}


class TestMistakes:
    @pytest.mark.parametrize("name", MISTAKES)
    def test_a_mistake_is_told_once_with_its_place(self, files: Files, name: str) -> None:
        """One mistake is one line that begins with its path, whatever the mistake is."""
        content, beginning = MISTAKES[name]
        (problem,) = files.problems(content)
        assert problem.startswith(beginning.replace("{file}", str(files.path)))

    def test_all_mistakes_are_told_at_once(self, files: Files) -> None:
        """Mistakes in one part hide none in another, not even in the same listener."""
        problems = files.problems(
            """
            data: 5
            data: [6]
            durability: safe
            retention: {seconds: x, weeks: 2}
            users:
              - {name: a, password: hunter2, publisher: true}
              - {name: a, password: 5, publisher: maybe}
              - 7
            listeners:
              - {protocol: amqp, endpoint: "tcp:x", maxConnections: 0, users: 5}
              - 8
              - {protocol: qlite, endpoint: "systemd:domain=INET:index=3", maxMessages: x, a: b}
              - {protocol: qlite, config: missing.yaml, maxMessages: 0, a: b}
            sink: {lines: "udp:1", bufferBytes: 1}
            speed: 9
            """
        )
        places = sorted(re.split(": | is there", problem)[0] for problem in problems)
        assert places == sorted(
            [
                f"{files.path}:3:13",  # data, the second time
                "data",
                "durability",
                "retention.seconds",
                "retention.weeks",
                "users[1].name",
                "users[1].password",
                "users[1].publisher",
                "users[1]",
                "users[2]",
                "listeners[0].protocol",
                "listeners[0].endpoint",
                "listeners[0].maxConnections",
                "listeners[0].users",
                "listeners[1]",
                "listeners[2].endpoint",
                "listeners[2].maxMessages",
                "listeners[2].a",
                "listeners[3].config",
                "listeners[3].maxMessages",
                "listeners[3].a",
                "sink.lines",
                "sink.bufferBytes",
                "speed",
            ]
        )

    def test_a_key_that_is_there_twice_is_told_wherever_it_is(self, files: Files) -> None:
        """A key may be there twice in a listener, and a third time, and in a user."""
        problems = files.problems(
            "users: [{name: a, name: b, password: c, publisher: true}]\n"
            "listeners: [{protocol: qlite, queue: a, queue: b, queue: c, endpoint: 'tcp:1'}]\n"
        )
        assert problems == [
            f"{files.path}:1:19: 'name' is there twice",
            f"{files.path}:2:41: 'queue' is there twice",
            f"{files.path}:2:51: 'queue' is there twice",
        ]

    def test_a_file_that_is_not_there_is_a_mistake(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigErrors) as caught:
            read(tmp_path / "none.yaml")
        assert caught.value.problems == [f"{tmp_path}/none.yaml: No such file or directory"]

    def test_a_directory_is_a_mistake(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigErrors) as caught:
            read(tmp_path)
        assert caught.value.problems == [f"{tmp_path}: Is a directory"]

    def test_a_file_that_is_no_text_is_a_mistake(self, files: Files) -> None:
        files.path.write_bytes(b"data: \xff\xfe\n")
        with pytest.raises(ConfigErrors) as caught:
            read(files.path)
        assert caught.value.problems == [f"{files.path}: not UTF-8 text"]


class TestPasswords:
    def test_what_the_file_becomes_does_not_show_them(self, files: Files) -> None:
        """The configuration can be logged as it is."""
        config = files.load(with_listener(users=[USER]))
        assert SECRET not in f"{config!r} {config}"
        assert "password=..." in repr(config)

    @pytest.mark.parametrize(
        "user",
        [
            "{name: a, password:hunter2, publisher: true}",
            "{name: a, hunter2, publisher: true}",
            "{name: a, password: hunter2, hunter2: hunter2, publisher: true}",
            "{name: a, password: *hunter2, publisher: true}",
            "{name: a, password: !hunter2 x, publisher: true}",
            "{name: a, password: !hunter2!x y, publisher: true}",
            "{name: a, password: !!int hunter2, publisher: true}",
            "{name: a, password: !!bool hunter2, publisher: true}",
            "{name: a, password: !!float hunter2, publisher: true}",
            "{name: a, password: !!timestamp hunter2, publisher: true}",
            "{name: a, password: !!binary hunter2, publisher: true}",
            "{name: a, password: [hunter2], publisher: true}",
            "{name: a, password: {hunter2: hunter2, hunter2: 1}, publisher: true}",
            "{name: a, password: hunter2, password: hunter2, publisher: true}",
            "{name: a, password: 'hunter2\n",
            '{name: a, password: "hunter2\\q", publisher: true}',
            "{name: a, password: %hunter2, publisher: true}",
            "{name: a, password: @hunter2, publisher: true}",
            "{name: a, password: hunter2",
            "{name: a\n   password: hunter2\n",
            "hunter2",
        ],
    )
    def test_no_message_shows_one(self, files: Files, user: str) -> None:
        """However a password is mistyped, it is not in what is said about it."""
        problems = files.problems(
            f"listeners: [{{protocol: qlite, endpoint: 'tcp:1'}}]\nusers:\n - {user}\n"
        )
        assert problems != []  # and `problems` has looked for the password

    def test_one_that_weakens_a_login_draws_a_warning(self, files: Files) -> None:
        """57 bytes leave less than a whole challenge to bcrypt; 56 do not."""
        assert files.load(with_user(password="p" * 56)).warnings == []
        (warning,) = files.load(with_user(password="p" * 57)).warnings
        assert warning.startswith("users[0].password: over 56 bytes")

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
    @pytest.mark.parametrize("content", [GOOD, {"listeners": [{**LISTENER, "users": [USER]}]}])
    def test_a_file_that_others_can_read_draws_a_warning(
        self, files: Files, content: Any, mode: int
    ) -> None:
        """Passwords that others can read are worth a warning; with mode 600 there is none."""
        assert files.load(content).warnings == []
        files.path.chmod(mode)
        assert read(files.path).warnings == [
            f"{files.path} has passwords and others can read it (chmod 600 {files.path})"
        ]

    def test_a_file_without_them_may_be_read_by_all(self, files: Files) -> None:
        files.load({"listeners": [LISTENER]})
        files.path.chmod(0o644)
        assert read(files.path).warnings == []


class TestTheExample:
    """etc/mqgateway.yaml"""

    example = yaml.safe_load(EXAMPLE.read_text())

    def test_it_is_right(self) -> None:
        assert read(EXAMPLE).listeners != []

    def test_it_shows_every_top_level_setting_with_its_default(self, files: Files) -> None:
        """What the example says is what an empty file means."""
        keys = {"data", "durability", "retention", "users", "listeners", "routes", "sink"}
        keys |= {"web", "spark"}
        assert self.example.keys() == keys
        assert self.example["retention"].keys() == {"seconds", "bytes"}
        assert self.example["sink"].keys() == {"lines", "bufferBytes", "replay", "token"}
        assert self.example["web"].keys() == {"endpoint", "token"}
        assert self.example["spark"].keys() == {
            *("enabled", "master", "jobs", "checkpoint", "archive")
        }
        shown, default = read(EXAMPLE), files.load(GOOD)
        for field in ("data", "durability", "retention", "sink_buffer"):
            assert getattr(shown, field) == getattr(default, field)

    def test_no_other_setting_is_known(self, files: Files) -> None:
        """The keys that the program names when one is unknown are the keys of the example."""
        (problem,) = files.problems({**GOOD, "x": 1})
        assert problem.split("known are ")[1].split(", ") == [*self.example]

    def test_it_shows_a_listener_for_every_protocol(self) -> None:
        assert [stanza["protocol"] for stanza in self.example["listeners"]] == [*PROTOCOLS]

    @pytest.mark.parametrize("protocol", PROTOCOLS)
    def test_it_shows_every_setting_of_a_listener_with_its_default(self, protocol: str) -> None:
        """No setting of a protocol is missing, and none has another value than its default."""
        (stanza,) = [each for each in self.example["listeners"] if each["protocol"] == protocol]
        settings = PROTOCOLS[protocol].settings
        assert stanza.keys() == {"protocol", "endpoint", "maxConnections", *settings}
        assert stanza["maxConnections"] == 1000
        shown = {name: (stanza[name], type(stanza[name])) for name in settings}
        assert shown == {name: (s.default, type(s.default)) for name, s in settings.items()}

    def test_it_mentions_what_it_does_not_set(self) -> None:
        """A listener's own users, and qlite's config.yaml, are there as comments."""
        text = EXAMPLE.read_text()
        assert re.search(r"^    # users: ", text, re.MULTILINE)
        assert re.search(r"^    # config: ", text, re.MULTILINE)

    def test_it_shows_everything_about_a_user(self) -> None:
        for user in self.example["users"]:
            assert user.keys() == {"name", "password", "publisher", "subscriber"}

    def test_it_listens_on_loopback_only(self) -> None:
        endpoints = [stanza["endpoint"] for stanza in self.example["listeners"]]
        endpoints += [self.example["sink"]["lines"], self.example["sink"]["replay"]]
        assert all(re.fullmatch(r"tcp:\d+:interface=127\.0\.0\.1", each) for each in endpoints)


# The example of the original document, word for word.
ORIGINAL = """\
users:
   - name: user1
     password: mypassword
     publisher: true
     subscriber: false
     
   - name: user2
     password: mypassword2
     publisher: false
     subscriber: true
     
port: 8080
maxSubscriberConnections: 2
maxPublisherConnections: 2
maxMessages: 1000
"""  # noqa: W293
STANZA = {"protocol": "qlite", "config": "qlite/config.yaml"}
ONE_USER = f"users: [{{name: pub, password: {SECRET}, publisher: true}}]\n"


class TestTheOriginalQliteFile:
    """A listener may name the config.yaml of an original qlite server."""

    def listener(self, files: Files, text: str, **stanza: Any) -> Any:
        files.write("qlite/config.yaml", text)
        (listener,) = files.load({"listeners": [{**STANZA, **stanza}]}).listeners
        return listener

    def problems(self, files: Files, text: str) -> list[str]:
        files.write("qlite/config.yaml", text)
        return files.problems({"listeners": [STANZA]})

    def test_the_example_of_the_original_document_is_read_as_it_is(self, files: Files) -> None:
        """Port, users and limits of the original file are the listener's."""
        listener = self.listener(files, ORIGINAL)
        assert listener.endpoint == "tcp:8080"
        assert [account.user for account in listener.accounts] == [
            User("user1", publisher=True, subscriber=False),
            User("user2", publisher=False, subscriber=True),
        ]
        words = [account.password.reveal() for account in listener.accounts]
        assert words == [b"mypassword", b"mypassword2"]
        assert listener.settings["maxSubscriberConnections"] == 2
        assert listener.settings["maxPublisherConnections"] == 2
        assert listener.settings["maxMessages"] == 1000

    def test_what_it_does_not_say_has_the_documents_default(self, files: Files) -> None:
        """Port 8080, one publisher, one subscriber, 100 messages."""
        listener = self.listener(files, ONE_USER)
        assert listener.endpoint == "tcp:8080"
        assert listener.settings["maxSubscriberConnections"] == 1
        assert listener.settings["maxPublisherConnections"] == 1
        assert listener.settings["maxMessages"] == 100

    def test_0_is_the_default(self, files: Files) -> None:
        """In the original, 0 meant that nothing had been said."""
        numbers = (
            *("port", "maxSubscriberConnections", "maxPublisherConnections", "maxMessages"),
            *("maxMessageSize", "maxIoTimeSeconds", "maxPollingTimeSeconds"),
            "maxHiddenTimeSeconds",
        )
        zeros = "".join(f"{name}: 0\n" for name in numbers)
        assert repr(self.listener(files, ONE_USER + zeros)) == repr(self.listener(files, ONE_USER))

    def test_settings_of_later_generations_count(self, files: Files) -> None:
        settings = self.listener(
            files,
            ONE_USER + "maxMessageSize: 1000\nmaxIoTimeSeconds: 2\n"
            "maxPollingTimeSeconds: 20\nmaxHiddenTimeSeconds: 60\n",
        ).settings
        assert settings["maxMessageSize"] == 1000
        assert settings["maxIoTimeSeconds"] == 2.0
        assert settings["maxPollingTimeSeconds"] == 20.0
        assert settings["maxHiddenTimeSeconds"] == 60

    def test_address_and_verbose_change_nothing(self, files: Files) -> None:
        """The original read `address` and listened everywhere all the same."""
        plain = self.listener(files, ONE_USER)
        with_both = self.listener(files, ONE_USER + "address: 10.0.0.1\nverbose: true\n")
        assert repr(with_both) == repr(plain)

    def test_what_the_listener_says_itself_wins(self, files: Files) -> None:
        """The stanza's endpoint, users and limits stand, and the file gives the rest."""
        listener = self.listener(
            files,
            ORIGINAL,
            endpoint="tcp:9999:interface=127.0.0.1",
            maxMessages=7,
            queue="jobs",
            maxConnections=3,
            users=[USER],
        )
        assert listener.endpoint == "tcp:9999:interface=127.0.0.1"
        assert listener.settings["maxMessages"] == 7
        assert listener.settings["queue"] == "jobs"
        assert listener.settings["maxPublisherConnections"] == 2
        assert listener.max_connections == 3
        assert [account.user.name for account in listener.accounts] == ["pub"]

    def test_its_users_are_the_listeners_own(self, files: Files) -> None:
        """Users of the gateway's file do not reach such a listener, nor the other way round."""
        files.write("qlite/config.yaml", ONE_USER)
        config = files.load({"users": [{**USER, "name": "else"}], "listeners": [STANZA]})
        assert [account.user.name for account in config.accounts] == ["else"]
        accounts = config.listeners[0].accounts
        assert accounts is not None
        assert [account.user.name for account in accounts] == ["pub"]

    def test_a_file_without_users_needs_them_in_the_listener(self, files: Files) -> None:
        assert self.listener(files, "port: 1024\n", users=[USER]).endpoint == "tcp:1024"
        (problem,) = self.problems(files, "port: 1024\n")
        assert problem.endswith(
            "qlite/config.yaml: users: must be there: a list with at least one user"
        )

    @pytest.mark.parametrize("path", ["qlite/config.yaml", "{directory}/qlite/config.yaml"])
    def test_its_path_is_relative_to_the_gateways_file(
        self, files: Files, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It does not matter where the gateway is started; an absolute path is one."""
        monkeypatch.chdir("/")
        path = path.replace("{directory}", str(files.path.parent))
        assert self.listener(files, ORIGINAL, config=path).endpoint == "tcp:8080"

    @pytest.mark.parametrize("port", [1024, 49151])
    def test_ports_from_1024_to_49151_are_allowed(self, files: Files, port: int) -> None:
        assert self.listener(files, f"{ONE_USER}port: {port}\n").endpoint == f"tcp:{port}"

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("port: 1023", "port: must be a whole number from 1024 to 49151"),
            ("port: 49152", "port: must be a whole number from 1024 to 49151"),
            ("port: abc", "port: must be a whole number"),
            ("port: true", "port: must be a whole number"),
            ("port:", "port: must be a whole number"),
            ("ports: 8080", "ports: unknown; known are users, port, maxSubscriberConnections"),
            ("queue: jobs", "queue: unknown"),
            (
                "maxSubscriberConnections: 65536",
                "maxSubscriberConnections: must be from 1 to 65535",
            ),
            ("maxPublisherConnections: -1", "maxPublisherConnections: must be from 1 to 65535"),
            ("maxMessages: 4294967296", "maxMessages: must be from 1 to 4294967295"),
            ("maxMessages: 1.5", "maxMessages: must be a whole number"),
            ("maxMessages: '5'", "maxMessages: must be a whole number"),
            ("maxIoTimeSeconds: soon", "maxIoTimeSeconds: must be a number"),
            ("maxIoTimeSeconds: .nan", "maxIoTimeSeconds: must be from 0.001 to 3600"),
            ("maxHiddenTimeSeconds: -.inf", "maxHiddenTimeSeconds: must be a whole number"),
        ],
    )
    def test_a_mistake_is_told_with_file_and_key(
        self, files: Files, text: str, problem: str
    ) -> None:
        """Unlike the original, the gateway does not start with a wrong config.yaml."""
        (told,) = self.problems(files, f"{ONE_USER}{text}\n")
        assert told.startswith(f"listeners[0].config: qlite/config.yaml: {problem}")

    @pytest.mark.parametrize(
        ("user", "problem"),
        [
            ("{name: abcdefghijklm, password: hunter2, publisher: true}", "users[0].name: must be"),
            ("{name: '', password: hunter2, publisher: true}", "users[0].name: must be text, 1 to"),
            ("{name: a-b, password: hunter2, publisher: true}", "users[0].name: must be text, 1"),
            ("{name: \u00e9, password: hunter2, publisher: true}", "users[0].name: must be text"),
            ("{name: \u0663, password: hunter2, publisher: true}", "users[0].name: must be text"),
            ('{name: "a\\n", password: hunter2, publisher: true}', "users[0].name: must be text"),
            ("{name: 12, password: hunter2, publisher: true}", "users[0].name: must be text, 1 to"),
            ("{name: a, publisher: true}", "users[0].password: must be text"),
            ("{name: a, password: '', publisher: true}", "users[0].password: must be text"),
            ("{name: a, password: 5, publisher: true}", "users[0].password: must be text (in quo"),
            ("{name: a, password: hunter2}", "users[0]: is neither publisher nor subscriber"),
            ("{name: a, password: hunter2, publisher: hunter2}", "users[0]: publisher and subsc"),
            (
                "{name: a, password: hunter2, publisher: true, hunter2: 5}",
                "users[0]: has a key that is unknown; known are name, password",
            ),
            ("hunter2", "users[0]: must be a mapping"),
        ],
    )
    def test_a_wrong_user_is_told_with_file_and_place(
        self, files: Files, user: str, problem: str
    ) -> None:
        """Names are 1 to 12 ASCII letters and digits; no password is shown."""
        (told,) = self.problems(files, f"users: [{user}]\n")
        assert told.startswith(f"listeners[0].config: qlite/config.yaml: {problem}")

    def test_all_its_mistakes_are_told_at_once(self, files: Files) -> None:
        """Those of the file, those of the stanza that names it, and those of the next one."""
        files.write(
            "qlite/config.yaml",
            "port: 1\nmaxMessages: x\nspeed: 5\n"
            "users:\n"
            " - {name: a b, password: hunter2, publisher: true}\n"
            " - {name: ok, password: hunter2, publisher: true}\n"
            " - {name: ok, password: hunter2}\n",
        )
        stanza = {**STANZA, "endpoint": "tcp:x", "colour": "red"}
        problems = files.problems({"listeners": [stanza, {**LISTENER, "endpoint": "tcp:y"}]})
        inside = "listeners[0].config: qlite/config.yaml: "
        assert [re.sub(" (must|unknown|there|is).*", "", problem) for problem in problems] == [
            inside + "speed:",
            inside + "port:",
            inside + "maxMessages:",
            inside + "users[0].name:",
            inside + "users[2].name:",
            inside + "users[2]:",
            "listeners[0].colour:",
            "listeners[0].endpoint: 'tcp:x'",
            "listeners[1].endpoint: 'tcp:y'",
        ]

    @pytest.mark.parametrize("text", ["- a\n", "5", "hello"])
    def test_a_file_that_is_no_mapping_is_refused(self, files: Files, text: str) -> None:
        assert self.problems(files, text) == [
            "listeners[0].config: qlite/config.yaml: must be a mapping"
        ]

    def test_an_empty_file_is_refused(self, files: Files) -> None:
        """It has no users."""
        (problem,) = self.problems(files, "")
        assert problem.startswith("listeners[0].config: qlite/config.yaml: users: must be there")

    def test_yaml_that_is_none_is_refused(self, files: Files) -> None:
        """The original swallowed this and ran with its defaults."""
        (problem,) = self.problems(files, "users: [\n")
        assert problem.startswith(
            f"listeners[0].config: {files.path.parent}/qlite/config.yaml:2:1: "
        )

    def test_a_key_twice_is_refused(self, files: Files) -> None:
        place = f"{files.path.parent}/qlite/config.yaml:2:1"
        assert self.problems(files, f"port: 1024\nport: 1025\n{ONE_USER}") == [
            f"{place}: 'port' is there twice"
        ]

    def test_a_file_that_is_not_there_is_refused(self, files: Files) -> None:
        assert files.problems({"listeners": [STANZA]}) == [
            f"listeners[0].config: {files.path.parent}/qlite/config.yaml: No such file or directory"
        ]

    @pytest.mark.parametrize("name", [5, "", None, ["a"], "a\0b"])
    def test_a_path_that_is_none_is_refused(self, files: Files, name: Any) -> None:
        assert files.problems({"listeners": [{**STANZA, "config": name}]}) == [
            "listeners[0].config: must be the path of a qlite server's config.yaml"
        ]

    def test_one_that_others_can_read_draws_a_warning(self, files: Files) -> None:
        """The warning names the file with the passwords, not the one that names it."""
        self.listener(files, ORIGINAL)
        path = files.path.parent / "qlite/config.yaml"
        path.chmod(0o644)
        files.path.chmod(0o644)
        assert read(files.path).warnings == [
            f"{path} has passwords and others can read it (chmod 600 {path})"
        ]
