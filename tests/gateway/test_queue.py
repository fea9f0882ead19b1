"""Tests for gateway.queue through the Broker: who gets what, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.interfaces import Empty, Message, NoSuchAddress, Peer, QueueFull
from gateway.queue import QueueConsumer
from gateway.record import DELIVERED, RETURNED, SETTLED, TAKEN
from tests.support import World

JOBS = "queue:jobs"
ANN = Peer("test", "ann")


class Jobs:
    """A world with one queue, and short words for it."""

    def __init__(self, **options: Any) -> None:
        self.world = World()
        self.broker = self.world.broker
        self.clock = self.world.clock
        self.broker.declare(JOBS, **options)

    def push(self, *bodies: bytes, **about: Any) -> Message:
        for body in bodies:
            message = Message(JOBS, body, "bob", "test", **about)
            self.broker.push(message)
        return message

    def consume(self, **options: Any) -> Taker:
        return Taker(self, **options)

    def depth(self) -> int:
        return self.broker.info(JOBS).depth


class Taker:
    """A consumer that remembers what it was given."""

    def __init__(self, jobs: Jobs, **options: Any) -> None:
        self.got: list[tuple[bytes, int]] = []
        self.messages: list[Message] = []
        self.started = False
        self.consumer: QueueConsumer = jobs.broker.consume(
            JOBS, self._deliver, peer=ANN, started=self._start, **options
        )

    def _deliver(self, message: Message, deliveries: int) -> None:
        self.got.append((message.body, deliveries))
        self.messages.append(message)

    def _start(self) -> None:
        self.started = True

    def bodies(self) -> list[bytes]:
        return [body for body, _ in self.got]


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


class TestLine:
    def test_messages_leave_in_the_order_they_came(self, jobs: Jobs) -> None:
        jobs.push(b"a", b"b", b"c")
        assert [jobs.broker.take(JOBS, ANN).body for _ in range(3)] == [b"a", b"b", b"c"]
        with pytest.raises(Empty):
            jobs.broker.take(JOBS, ANN)

    def test_a_position_counts_from_one(self, jobs: Jobs) -> None:
        assert [jobs.broker.push(Message(JOBS, b"x")) for _ in range(3)] == [1, 2, 3]

    def test_the_maximum_counts_what_waits_and_what_is_handed_out(self) -> None:
        jobs = Jobs(limit=2)
        taker = jobs.consume(credit=1)
        jobs.push(b"a", b"b")
        with pytest.raises(QueueFull):
            jobs.push(b"c")
        taker.consumer.settle(taker.messages[0])
        jobs.push(b"c")

    def test_what_is_not_declared_is_not_there(self, jobs: Jobs) -> None:
        for call in (
            lambda: jobs.broker.push(Message("queue:none", b"")),
            lambda: jobs.broker.take("queue:none", ANN),
            lambda: jobs.broker.info("queue:none"),
            lambda: jobs.broker.consume("queue:none", lambda *_: None, peer=ANN),
        ):
            with pytest.raises(NoSuchAddress, match="there is no queue:none"):
                call()


class TestCredit:
    def test_a_consumer_gets_as_much_as_its_credit(self, jobs: Jobs) -> None:
        jobs.push(b"a", b"b", b"c")
        taker = jobs.consume(credit=2)
        assert taker.bodies() == [b"a", b"b"]
        taker.consumer.grant(1)
        assert taker.bodies() == [b"a", b"b", b"c"]

    def test_credit_can_be_taken_back(self, jobs: Jobs) -> None:
        taker = jobs.consume(credit=1)
        taker.consumer.grant(-1)
        jobs.push(b"a")
        assert taker.bodies() == []
        assert jobs.depth() == 1

    def test_equals_are_served_in_turn(self, jobs: Jobs) -> None:
        takers = [jobs.consume(credit=9) for _ in range(3)]
        jobs.push(*[b"%d" % number for number in range(6)])
        assert [taker.bodies() for taker in takers] == [
            [b"0", b"3"],
            [b"1", b"4"],
            [b"2", b"5"],
        ]

    def test_the_highest_priority_with_credit_is_served_first(self, jobs: Jobs) -> None:
        low, high = jobs.consume(credit=9, priority=1), jobs.consume(credit=2, priority=5)
        jobs.push(b"a", b"b", b"c")
        assert high.bodies() == [b"a", b"b"]
        assert low.bodies() == [b"c"]

    def test_to_pull_needs_no_credit(self, jobs: Jobs) -> None:
        taker = jobs.consume()
        assert taker.consumer.pull() is None
        jobs.push(b"a")
        message, deliveries = taker.consumer.pull() or (None, 0)
        assert message is not None
        assert (message.body, deliveries) == (b"a", 1)

    def test_a_consumer_may_push_while_it_is_given_something(self, jobs: Jobs) -> None:
        got: list[bytes] = []

        def deliver(message: Message, _: int) -> None:
            got.append(message.body)
            if len(got) < 5:
                jobs.push(b"%d" % len(got))
            got.append(b"done " + message.body)

        jobs.broker.consume(JOBS, deliver, 9, peer=ANN, final=True)
        jobs.push(b"0")
        assert got[:4] == [b"0", b"done 0", b"1", b"done 1"]

    def test_a_consumer_may_leave_while_it_is_given_something(self, jobs: Jobs) -> None:
        def deliver(message: Message, _: int) -> None:
            consumer.cancel()

        consumer = jobs.broker.consume(JOBS, deliver, 0, peer=ANN)
        jobs.push(b"a", b"b")
        consumer.grant(2)
        assert jobs.depth() == 2


class TestSettling:
    def test_settled_is_done(self, jobs: Jobs) -> None:
        jobs.push(b"a")
        taker = jobs.consume(credit=1)
        assert taker.consumer.settle(taker.messages[0])
        assert not taker.consumer.settle(taker.messages[0])
        taker.consumer.cancel()
        assert jobs.depth() == 0
        assert jobs.world.kinds()[-2:] == [DELIVERED, SETTLED]

    def test_final_is_settled_by_being_handed_out(self, jobs: Jobs) -> None:
        jobs.push(b"a")
        taker = jobs.consume(credit=1, final=True)
        taker.consumer.cancel()
        assert jobs.depth() == 0
        assert jobs.world.kinds()[-1] == TAKEN

    def test_rejected_goes_to_the_head_and_is_counted(self, jobs: Jobs) -> None:
        jobs.push(b"a", b"b")
        taker = jobs.consume(credit=1)
        assert taker.consumer.reject(taker.messages[0])
        taker.consumer.grant(2)
        assert taker.got == [(b"a", 1), (b"a", 2), (b"b", 1)]

    def test_dropped_is_offered_to_nobody_again_and_told(self, jobs: Jobs) -> None:
        tracker = Tracked()
        jobs.broker.push(Message(JOBS, b"a"), tracker)
        taker = jobs.consume(credit=1)
        assert taker.consumer.drop(taker.messages[0], "no use")
        assert not taker.consumer.drop(taker.messages[0], "no use")
        taker.consumer.cancel()
        assert jobs.broker.info(JOBS)[3:5] == (0, 0)
        assert tracker.told == ["taken", "undelivered: no use"]
        assert jobs.world.kinds()[-1] == "dropped"

    def test_a_retired_consumer_takes_no_more_and_may_still_settle(self, jobs: Jobs) -> None:
        jobs.push(b"a", b"b")
        taker = jobs.consume(credit=1)
        taker.consumer.retire()
        taker.consumer.grant(1)
        assert taker.bodies() == [b"a"]
        assert taker.consumer.settle(taker.messages[0])
        assert jobs.depth() == 1

    def test_what_a_consumer_leaves_goes_back_in_order(self, jobs: Jobs) -> None:
        jobs.push(b"a", b"b", b"c", b"d")
        first, second = jobs.consume(credit=2), jobs.consume(credit=1)
        second.consumer.cancel()  # c is back before a and b are
        first.consumer.cancel()
        assert jobs.consume(credit=9).got == [(b"a", 2), (b"b", 2), (b"c", 2), (b"d", 1)]
        assert jobs.world.kinds().count(RETURNED) == 3

    def test_a_lease_that_is_over_gives_the_message_back(self, jobs: Jobs) -> None:
        over: list[bool] = []
        jobs.push(b"a")
        taker = jobs.consume(credit=1)
        taker.consumer.lease(taker.messages[0], 5, lambda: over.append(True))
        jobs.clock.advance(4.9)
        assert (jobs.depth(), over) == (0, [])
        jobs.clock.advance(0.1)
        assert (jobs.depth(), over) == (1, [True])
        assert not taker.consumer.settle(taker.messages[0])

    @pytest.mark.parametrize("end", ["settle", "reject", "cancel"])
    def test_a_lease_ends_with_the_message(self, jobs: Jobs, end: str) -> None:
        jobs.push(b"a")
        taker = jobs.consume(credit=1)
        taker.consumer.lease(taker.messages[0], 5, lambda: pytest.fail("it was over"))
        if end == "cancel":
            taker.consumer.cancel()
        else:
            getattr(taker.consumer, end)(taker.messages[0])
        jobs.clock.advance(60)


class TestExclusive:
    def test_alone_on_a_free_queue(self, jobs: Jobs) -> None:
        holder = jobs.consume(credit=9, exclusive=True)
        later = jobs.consume(credit=9)
        jobs.push(b"a", b"b")
        assert (holder.started, later.started) == (True, False)
        assert (holder.bodies(), later.bodies()) == ([b"a", b"b"], [])

    def test_it_waits_until_the_others_have_left_and_newcomers_wait_behind_it(
        self, jobs: Jobs
    ) -> None:
        shared = jobs.consume(credit=9)
        waits, behind = jobs.consume(credit=9, exclusive=True), jobs.consume(credit=9)
        assert not waits.started
        shared.consumer.cancel()
        assert (waits.started, behind.started) == (True, False)
        waits.consumer.cancel()
        assert behind.started

    def test_the_backlog_comes_after_the_start(self, jobs: Jobs) -> None:
        holder = jobs.consume(exclusive=True)
        jobs.push(b"a")
        heard: list[str] = []
        jobs.broker.consume(
            JOBS, lambda *_: heard.append("a"), 1, peer=ANN, started=lambda: heard.append("start")
        )
        holder.consumer.cancel()
        assert heard == ["start", "a"]

    def test_one_that_leaves_the_line_is_passed_over(self, jobs: Jobs) -> None:
        holder, gone, next_one = (jobs.consume(exclusive=True) for _ in range(3))
        gone.consumer.cancel()
        holder.consumer.cancel()
        assert (gone.started, next_one.started) == (False, True)


class Tracked:
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def taken(self, message: Message) -> None:
        self.told.append("taken")

    def settled(self, message: Message) -> None:
        self.told.append("settled")

    def undelivered(self, message: Message, reason: str) -> None:
        self.told.append(f"undelivered: {reason}")


class TestTracking:
    def test_whoever_pushed_hears_what_becomes_of_it(self, jobs: Jobs) -> None:
        tracker = Tracked()
        jobs.broker.push(Message(JOBS, b"a"), tracker)
        taker = jobs.consume(credit=1)
        taker.consumer.reject(taker.messages[0])
        taker.consumer.grant(1)
        taker.consumer.settle(taker.messages[0])
        assert tracker.told == ["taken", "taken", "settled"]

    def test_taken_for_good_is_settled(self, jobs: Jobs) -> None:
        tracker = Tracked()
        jobs.broker.push(Message(JOBS, b"a"), tracker)
        jobs.broker.take(JOBS, ANN)
        assert tracker.told == ["taken", "settled"]

    def test_what_nobody_has_can_be_withdrawn(self, jobs: Jobs) -> None:
        tracker, message = Tracked(), Message(JOBS, b"b")
        jobs.push(b"a")
        jobs.broker.push(message, tracker)
        jobs.push(b"c")
        assert jobs.broker.withdraw(message, "requester left")
        assert not jobs.broker.withdraw(message, "requester left")
        assert tracker.told == ["undelivered: requester left"]
        assert jobs.depth() == 2
        assert jobs.consume(credit=9).bodies() == [b"a", b"c"]

    def test_what_somebody_has_cannot_be_withdrawn(self, jobs: Jobs) -> None:
        message = Message(JOBS, b"a")
        jobs.broker.push(message, Tracked())
        taker = jobs.consume(credit=1)
        assert not jobs.broker.withdraw(message, "too late")
        assert taker.consumer.settle(message)


class TestDue:
    def test_a_message_that_waits_too_long_expires(self, jobs: Jobs) -> None:
        tracker = Tracked()
        due = jobs.broker.now() + 5
        jobs.broker.push(Message(JOBS, b"a", due=due), tracker)
        jobs.push(b"b")
        jobs.clock.advance(5)
        assert tracker.told == ["undelivered: expired"]
        assert jobs.consume(credit=9).bodies() == [b"b"]

    def test_one_that_is_handed_out_does_not_come_back_after_its_time(self, jobs: Jobs) -> None:
        jobs.push(b"a", due=jobs.broker.now() + 5)
        taker = jobs.consume(credit=1)
        jobs.clock.advance(5)
        taker.consumer.cancel()
        assert jobs.depth() == 0
        assert jobs.world.kinds()[-1] == "expired"

    def test_one_that_comes_back_in_time_still_expires(self, jobs: Jobs) -> None:
        jobs.push(b"a", due=jobs.broker.now() + 5)
        taker = jobs.consume(credit=1)
        taker.consumer.cancel()
        assert jobs.depth() == 1
        jobs.clock.advance(5)
        assert jobs.depth() == 0


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, every message is in one place, and waiting ones leave in order."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Jobs()
        self.pushed = 0
        self.done = 0
        self.takers: list[Taker] = []

    @rule()
    def push(self) -> None:
        self.jobs.push(b"%d" % self.pushed)
        self.pushed += 1

    @rule(credit=st.integers(0, 3), priority=st.integers(0, 1), exclusive=st.booleans())
    def join(self, credit: int, priority: int, exclusive: bool) -> None:
        self.takers.append(self.jobs.consume(credit=credit, priority=priority, exclusive=exclusive))

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), credit=st.integers(-2, 3))
    def grant(self, data: Any, credit: int) -> None:
        data.draw(st.sampled_from(self.takers)).consumer.grant(credit)

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), end=st.sampled_from(["settle", "reject"]))
    def finish(self, data: Any, end: str) -> None:
        taker = data.draw(st.sampled_from(self.takers))
        if taker.messages:
            message = data.draw(st.sampled_from(taker.messages))
            if getattr(taker.consumer, end)(message) and end == "settle":
                self.done += 1

    @precondition(lambda self: self.takers)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        taker = data.draw(st.sampled_from(self.takers))
        self.takers.remove(taker)
        taker.consumer.cancel()

    @rule()
    def take(self) -> None:
        if self.jobs.depth():
            self.jobs.broker.take(JOBS, ANN)
            self.done += 1

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        info = self.jobs.broker.info(JOBS)
        held = sum(len(taker.consumer._held) for taker in self.takers)
        assert info.outstanding == held
        assert info.depth + held + self.done == self.pushed

    @invariant()
    def nobody_with_credit_waits_while_messages_do(self) -> None:
        ready = [taker for taker in self.takers if taker.consumer.credit > 0 and taker.started]
        assert not (ready and self.jobs.depth())

    def teardown(self) -> None:
        for taker in self.takers:
            taker.consumer.cancel()
        rest = [int(body) for body in self.jobs.consume(credit=10_000).bodies()]
        assert rest == sorted(rest)
        assert len(rest) + self.done == self.pushed


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
