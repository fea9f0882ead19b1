"""MQServer on a real gateway: mail over a restart, and queues where other protocols are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_twisted
import yaml
from twisted.internet.endpoints import clientFromString
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from protocols.mqserver.client import MqClient, Sent
from protocols.mqserver.client import connect as connect_mqserver
from protocols.mqserver.events import BROADCAST, PULL, STORE, FromClient
from protocols.qlite.client import PUBLISHER, SUBSCRIBER
from protocols.qlite.client import connect as connect_qlite
from protocols.rq.client import Node
from protocols.sk2mq.client import connect as connect_sk2mq
from tests.support import Process, free_port

PATIENCE = 60.0  # seconds for anything to come; the machine may be busy
PASSWORDS = {"fish": "haha", "wally": "hoho"}
SETTINGS: dict[str, dict[str, Any]] = {
    "mqserver": {},
    "qlite": {"queue": "jobs"},
    "sk2mq": {},
    "rq": {},
}


class Gateway:
    """A real gateway that can be started again."""

    def __init__(self, directory: Path) -> None:
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.ports = {name: free_port() for name in SETTINGS}
        self.config = directory / "gateway.yaml"
        content = {
            "data": str(directory / "data"),
            "users": [
                {"name": name, "password": word, "publisher": True, "subscriber": True}
                for name, word in PASSWORDS.items()
            ],
            "listeners": [
                {"protocol": name, "endpoint": f"tcp:{self.ports[name]}:interface=127.0.0.1", **own}
                for name, own in SETTINGS.items()
            ],
        }
        self.config.write_text(yaml.safe_dump(content))
        self.config.chmod(0o600)
        self.start()

    def start(self) -> None:
        self.process = Process(self.config)
        self.process.wait_for(self.ports["rq"])

    async def restart(self, kill: bool) -> None:
        await deferToThread(self.process.kill if kill else self.process.stop)
        await deferToThread(self.start)

    def endpoint(self, protocol: str) -> Any:
        return clientFromString(self.reactor, f"tcp:127.0.0.1:{self.ports[protocol]}")

    async def user(self, name: str, heard: Callable[[Any], None] = lambda _: None) -> MqClient:
        client: MqClient = await connect_mqserver(
            self.reactor, self.endpoint("mqserver"), name, PASSWORDS[name], heard
        )
        return client

    async def until(self, condition: Callable[[], object]) -> None:
        end = self.reactor.seconds() + PATIENCE
        while not condition():
            assert self.reactor.seconds() < end, "it did not come"
            await deferLater(self.reactor, 0.01)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tmp_path)
    yield made
    made.process.stop()
    assert "Traceback" not in made.process.log.read_text()


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_mail_that_is_not_acknowledged_survives(gateway: Gateway, kill: bool) -> None:
    """What was stored for a user, and what he had been handed, is there after a restart; what he
    had acknowledged is not."""
    heard: list[FromClient] = []
    wally = await gateway.user("wally")
    assert await wally.send_to_client("fish", 100, b"one") == Sent(1, is_stored=True)
    assert await wally.send_to_client("fish", 100, b"two\0") == Sent(2, is_stored=True)
    fish = await gateway.user("fish", heard.append)
    fish.appear(100).addErrback(lambda _: None)
    await gateway.until(lambda: len(heard) == 1)
    await gateway.restart(kill)

    heard.clear()
    fish = await gateway.user("fish", heard.append)
    synced = fish.appear(100)
    for number, body in enumerate((b"one", b"two\0"), 1):
        await gateway.until(lambda number=number: len(heard) == number)
        assert (heard[-1].id, heard[-1].payload) == (number, body)
        fish.ack(heard[-1])
    assert await synced == ()
    wally = await gateway.user("wally")
    sent = await wally.send_to_client("fish", 100, b"three")
    assert not sent.is_stored
    await gateway.until(lambda: len(heard) == 3)
    await gateway.restart(kill)

    heard.clear()
    fish = await gateway.user("fish", heard.append)
    synced = fish.appear(100)
    await gateway.until(lambda: len(heard) == 1)
    assert (heard[0].id, heard[0].sender, heard[0].payload) == (sent.id, "wally", b"three")
    fish.ack(heard[0])
    assert await synced == ()
    fish.disconnect()


@pytest_twisted.ensureDeferred
async def test_queues_lists_and_what_is_kept_survive(gateway: Gateway) -> None:
    heard: list[Any] = []
    fish = await gateway.user("fish", heard.append)
    await fish.create("news", BROADCAST | STORE, 10, 0, "what is new")
    await fish.create("work", PULL)
    await fish.notify("+wally", "+#news")
    await fish.send_to_queue("news", b"first", "topic")
    await fish.send_to_queue("work", b"job")
    await gateway.restart(kill=True)
    fish = await gateway.user("fish", heard.append)
    assert await fish.notify_list() == ["wally", "#news"]
    assert await fish.appear() == (("#news", ()),)
    info = await fish.join("news")
    assert (info.flags, info.owner, info.info) == (BROADCAST | STORE, "fish", "what is new")
    await gateway.until(lambda: len(heard) == 1)
    assert (heard[0].id, heard[0].topic, heard[0].payload) == (1, "topic", b"first")
    await fish.join("work")
    (message,) = await fish.get("work", 5)
    assert message.payload == b"job"
    assert (await fish.send_to_queue("news", b"next")).id > 1
    fish.disconnect()


@pytest_twisted.ensureDeferred
async def test_a_pull_queue_is_qlites_queue(gateway: Gateway) -> None:
    access = gateway.reactor, gateway.endpoint("qlite"), "fish", "haha"
    publisher = await connect_qlite(*access, PUBLISHER)
    subscriber = await connect_qlite(*access, SUBSCRIBER)
    wally = await gateway.user("wally")
    info = await wally.join("jobs")
    assert (info.flags, info.owner) == (PULL, "")
    await publisher.push(b"from qlite")
    (message,) = await wally.get("jobs")
    assert (message.sender, message.payload) == ("fish", b"from qlite")
    wally.ack(message)
    processed = wally.send_to_queue("jobs", b"to qlite", wait=True)
    assert await subscriber.pop(wait=True) == b"to qlite"
    assert (await processed).receivers == 1
    for client in (publisher, subscriber, wally):
        client.disconnect()


@pytest_twisted.ensureDeferred
async def test_a_broadcast_queue_is_a_topic_of_sk2mq_and_rq(gateway: Gateway) -> None:
    """Each of the three says something, and all three hear it."""
    heard: dict[str, list[bytes]] = {"mqserver": [], "sk2mq": [], "rq": []}
    fish = await gateway.user("fish", lambda message: heard["mqserver"].append(message.payload))
    await fish.create("news")
    await fish.join("news")
    sk2mq = await connect_sk2mq(
        gateway.reactor,
        gateway.endpoint("sk2mq"),
        lambda delivery: heard["sk2mq"].append(delivery.message),
    )
    await sk2mq.join(b"news")
    node = Node(gateway.reactor, [gateway.endpoint("rq")], Random(1))
    node.consume(b"news", lambda body: b"", priority=0, heard=heard["rq"].append)
    node.start()

    async def receivers() -> int:
        sent = await fish.send_to_queue("news", b"hello?", wait=True)
        return sent.receivers or 0

    while await receivers() < 3:  # the node is there when it is
        await deferLater(gateway.reactor, 0.05)
    for bodies in heard.values():
        await gateway.until(lambda bodies=bodies: b"hello?" in bodies)
    await sk2mq.send_message(b"news", b"from sk2mq", int(gateway.reactor.seconds()) + 60)
    assert node.broadcast(b"news", b"from rq")
    await gateway.until(
        lambda: all({b"from sk2mq", b"from rq"} <= {*bodies} for bodies in heard.values())
    )
    fish.disconnect()
    sk2mq.disconnect()
    await node.stop()
