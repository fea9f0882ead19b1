"""One topic: who listens, and what is kept until it is due."""

from __future__ import annotations

from collections.abc import Callable

from gateway.interfaces import Message


class Topic:
    """Every subscriber present gets a message; one with a due time is kept for later ones, or every
    one, if the topic `keeps`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.keeps = False  # also what has no due time
        self.limit: int | None = None  # how many it keeps at most; the oldest make way
        self.subscriptions: dict[TopicSubscription, None] = {}
        self._kept: dict[int, Message] = {}

    def __len__(self) -> int:
        """How many messages are kept."""
        return len(self._kept)

    def keep(self, message: Message) -> None:
        self._kept[message.sequence] = message

    def forget_oldest(self) -> list[Message]:
        """Forget what is over the limit."""
        over = 0 if self.limit is None else len(self._kept) - self.limit
        return [self._kept.pop(next(iter(self._kept))) for _ in range(over)]

    def forget(self, message: Message) -> bool:
        """False if it is not kept (any more)."""
        return self._kept.pop(message.sequence, None) is not None

    def forget_since(self, sequence: int) -> list[Message]:
        """Forget what was accepted from that sequence on."""
        newest = []
        for number in reversed(self._kept):
            if number < sequence:
                break
            newest.append(number)
        return [self._kept.pop(number) for number in newest]

    def retained(self) -> list[Message]:
        return list(self._kept.values())

    def close(self) -> list[Message]:
        """Be no more: nobody hears anything from here on.  What was kept."""
        for subscription in [*self.subscriptions]:
            subscription.cancel()
        kept, self._kept = self._kept, {}
        return [*kept.values()]

    def publish(self, message: Message) -> int:
        """Give it to everybody present; how many they are."""
        present = list(self.subscriptions)  # a subscriber may leave while it is told
        for subscription in present:
            subscription.deliver(message)
        return len(present)


class TopicSubscription:
    """interfaces.Subscription."""

    def __init__(self, topic: Topic, deliver: Callable[[Message], None]) -> None:
        self._topic = topic
        self.deliver = deliver
        topic.subscriptions[self] = None

    def cancel(self) -> None:
        self._topic.subscriptions.pop(self, None)
        self.deliver = lambda message: None  # left in the middle of a publish: hear no more
