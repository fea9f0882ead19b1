"""sk2mq: topics with members, and messages that are kept until they are due.

The wire, in a page.  A packet is a tag (one byte), the length of its body (4 bytes) and the body;
all numbers are big-endian.  The server begins with HELLO (tag 3), which gives the client its name.
Then the client asks with MGMT (tag 1): an action and a topic with its length before it; or with
MSG (tag 0): the due time in seconds since 1970, the lengths of client, topic and message, and these
three.  Each is answered with a code, in order.  To the members of a topic the server sends MSG, in
the same layout, between the answers; nobody answers that.

    20 OK        32 FOUND, the topic to create exists    40 BADPACKET     41 BADCLIENT, not his name
    43 INPAST    44 NOTFOUND, there is no such topic     50 SERVERERROR

A listener speaks one dialect, because HELLO comes first:

                         seed (the document)            upstream (the public implementation)
    HELLO                length and name                the name alone
    JOIN, QUIT, CREATE   0, 1, 2                        10, 11, 12
    data of MSG          client, topic, message         topic, client, message
    response             tag 2 and one byte, the code   the code is the tag, no body
    order of checks      40, 41, 44, 43                 44, 41
    due in the past      43                             20, and the message is dropped
    malformed            40, the body is skipped        skipped without an answer
    bytes after the end  40                             ignored
    author               hears himself (`echo_own`)     only in a backlog
    empty message        delivered                      accepted, and not delivered: see below
    backlog              in order of arrival            the first due first, equal ones newest first

Our choices, where the document is silent or the two disagree:

- A topic is `topic:` and its name, in one namespace with all protocols; what of a name is no text
  reads as %XX.  The empty name is a name.
- OK comes before the backlog.  To join twice is OK and brings no second backlog, to join after
  QUIT does.  To quit a topic that one has not joined is OK, and whoever has not joined may send.
- A message is worthless from its due second on; `due` is unsigned.  One of another protocol without
  a due time is due in 2106, the latest that there is.
- A backlog is sent as fast as the member reads it, and what is published meanwhile comes after it.
- A client that closes its side gets its responses, and not the rest of a backlog.
- The public client library hangs up on an empty message, so that an upstream listener sends none.
- A member that does not read is dropped when `max_unread_bytes` wait for it.
- Names are never given twice, see `Sk2mqFactory`.
- HELLO or a response from a client, an unknown tag or action, and lengths that do not fit the body
  are malformed.  A body over `max_body_bytes` is answered with 40, and then the connection ends.
- `extra_codes` lets an upstream listener say 40 and 43 too; clients cope, the public server never
  did.  50 it says in any case: the alternative is to lie.
- `echo_own: false` keeps from a member what it sent itself, but not in a backlog, as upstream.
- Topics are never deleted; they and what is not due survive a restart.
"""
