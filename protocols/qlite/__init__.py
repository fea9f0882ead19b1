"""qlite: one queue, publishers that push and subscribers that pop.

The wire, in a page.  A frame is a 4-byte little-endian length and that many bytes.  The server
begins with `greetings;` and 16 raw bytes, the challenge (a uuid4).  The client answers with a role
byte (0 publisher, 1 subscriber), its name, `;` and the bcrypt hash (cost 10) of its password and
the challenge, cut to 72 bytes.  `PASS;` lets it in; `FAIL;` and a text is followed by the end.
Then each request is a function, `;` and its argument, each answer `PASS;` and a value or `FAIL;`
and a text, in the order of the requests:

    PUSH;message   the position in the queue, LE uint32, from 1     publishers
    SPOP;          the oldest message, or at once an error          subscribers
    LPOP;          the same, but waits up to maxPollingTimeSeconds  subscribers
    LEN;           how many messages wait, LE uint32                both
    HIDE;seconds   a uid, `;` and the oldest message, hidden for    subscribers
                   that time (LE uint32) or until it is deleted
    POLL;seconds   the same, but waits as LPOP does                 subscribers
    DEL;uid        the uid of the hidden message, which is gone     subscribers

Our choices, where the documents are silent or disagree:

- Both generations are served on one listener: SPOP and LPOP beside HIDE, POLL and DEL.
- Requests may be pipelined.  Waiting pops are served first come, first served, and a subscriber
  that leaves while it waits takes nothing with it.
- A hidden message comes back at the head when its time is over or its connection is lost.  Any
  subscriber may delete it by its uid meanwhile.  LEN does not count it, maxMessages does.
- POLL with too long a hiding time says so at once.  HIDE or POLL without four bytes of seconds is
  a bad request.
- An unknown user is told apart from a wrong password, as clients of old expect.
- Only bcrypt of cost 10 is looked at: the cost is read before any hashing is done.
- Sockets that have not logged in are limited by themselves (maxUnauthenticatedConnections); a
  place for a role is taken after the password has been checked and freed when the connection goes.
- The name of an unknown function is repeated up to 64 characters.
- An answer that cannot be kept because the disk fails is `FAIL;error: ` and the reason.
"""
