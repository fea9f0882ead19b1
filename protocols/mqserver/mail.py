"""Users, as others see them: who is there, with which applications, and what they are sent."""

from __future__ import annotations

from gateway.interfaces import Broker, Message, User
from protocols.mqserver import events
from protocols.mqserver.events import Ack, State
from protocols.mqserver.handed import WINDOW, Handed, Window
from protocols.mqserver.ids import ID, NAME
from protocols.mqserver.people import Change
from protocols.mqserver.queues import Refusal, sender_of
from protocols.mqserver.session import Session

APP = "app"  # a header: the application that a message to a client is for


class Correspondent(Session):
    """One connection, as far as it has to do with other users."""

    def admitted(self, user: User) -> None:
        people = self.common.people
        self.notify_list = people.notify_list(user.name)
        people.come(user.name, self)

    # People.

    def on_AppId(self, app_id: events.AppId) -> None:
        first = self.mail is None
        if first:
            self._open_mailbox()
        changed = app_id.app_ids != self.app_ids
        self.app_ids = app_id.app_ids
        self.is_present = True
        if first or changed:
            user = self.peer.user
            self.common.people.tell(user, (f"+{user}", self.app_ids))
        if first:
            self.sync()

    def on_Notify(self, notify: events.Notify) -> None:
        if not notify.changes:
            self.send(Ack(notify.mid, " ".join(self.notify_list)))
            return
        names, unknown = dict.fromkeys(self.notify_list), []
        for change in notify.changes:
            name = change[1:]
            if change[0] == "-":
                names.pop(name, None)
            elif name[0] == "#" or self._is_known(name):
                names[name] = None
            else:
                unknown.append(name)
        if len(names) > max(self.factory.max_notify, len(self.notify_list)):
            raise Refusal("NOTLISTFULL")
        if [*names] != self.notify_list:
            self.common.people.set_notify_list(self, [*names])
        if unknown:
            raise Refusal("ENOUSER", " ".join(unknown))
        self.send(Ack(notify.mid))

    def _is_known(self, user: str) -> bool:
        return self.factory.accounts.find(user) is not None or user in self.common.people.online

    def hear_of(self, news: Change) -> None:
        """Somebody or something on its list came, changed or went."""
        if self.is_synced and self.capabilities & events.NOTIFYING:
            self.send(events.Presence(self.next_mid(), (news,)))

    @property
    def is_synced(self) -> bool:
        return self.talk.state is State.SYNCED

    # Mail.

    def on_SendToClient(self, send: events.SendToClient) -> None:
        self.must_be("publisher")
        common, user = self.common, send.user
        if not self._is_known(user):
            raise Refusal("ENOUSER", user)
        receiver = common.people.online.get(user)
        is_there = receiver is not None and receiver.is_present
        if receiver is not None and is_there and send.app_id not in receiver.app_ids:
            raise Refusal("ENOAPP", f"{user} {send.app_id}")
        address = common.people.open_mailbox(user, self.factory.maxMailbox)
        number = common.queues.ids(address).next()
        headers = {APP: send.app_id, ID: number}
        message = Message(address, send.payload, self.peer.user, NAME, headers=headers)
        if receiver is self and self.mail is not None:
            self.hold(self.mail)
        self.push(message, send, f"1 {number}", f"{1 if is_there else 2} {number}")

    def _open_mailbox(self) -> None:
        """Let the stored messages come, one at a time."""
        broker: Broker = self.factory.broker  # it is his own, whatever his rights
        address = self.common.people.open_mailbox(self.peer.user, self.factory.maxMailbox)
        mail = Window(self, 1, address)
        mail.consumer = broker.consume(address, self._deliver_mail, peer=self.peer)
        self.mail = mail
        self.windows[mail] = None

    def _deliver_mail(self, message: Message, deliveries: int) -> None:
        assert self.mail is not None
        headers, mid = message.headers or {}, self.next_mid()
        app_id = headers.get(APP)
        number = self.common.queues.ids(message.address).of(message)
        self.handed[mid] = Handed(self.mail, message, self.sync)
        self.send(
            events.FromClient(
                mid,
                sender_of(message),
                app_id if isinstance(app_id, int) else 0,
                number,
                int(message.time),
                message.body,
            )
        )

    def sync(self) -> None:
        """Let more mail come; when the last stored message is acknowledged, say who is there."""
        mail = self.mail
        assert mail is not None
        mail.adjust()
        if mail.in_flight or self.talk.state is not State.SYNCING or self._closing:
            return
        if self.factory.broker.info(mail.address).depth:
            return  # the client does not read; there will be room
        people, queues = self.common.people, self.common.queues
        self.send(events.Presence(self.next_mid(), people.present(self.notify_list, queues)))
        mail.most = WINDOW
        mail.adjust()
