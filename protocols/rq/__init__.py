"""RQ: requests to queues, replies, and broadcasts to whoever consumes a queue.

The wire, in a page.  There is no greeting, no login and no frame: a stream of commands, a byte
each, whose top three bits say what follows (nothing; 1, 2 or 4 bytes of a big-endian number; a
string with a length of 1, 2 or 4 bytes).  Numbers, strings and flags are fields; a verb acts on
those that came since the last CLEAR.  A controller is a server, a node is its client:

    CLEAR [EXCLUSIVE] QUEUE MAX PRIORITY CONSUME         a node will work; answered, now or later,
    CLEAR QUEUEID QUEUE CONSUMING                        with the id of the queue
    CLEAR ID QUEUE|QUEUEID PAYLOAD [NOREPLY] [RETRIES] [TIMEOUT] REQUEST      a node asks
    CLEAR QUEUEID|QUEUE PAYLOAD [NOREPLY] ID REQUEST     a consumer is handed it, under our id
    CLEAR ID DELIVERED                                   it has it; passed on under the asker's id
    CLEAR ID PAYLOAD REPLY                               the same way back
    CLEAR ID UNDELIVERED                                 it cannot be done; of a consumer: not by it
    CLEAR QUEUE|QUEUEID PAYLOAD BROADCAST                to all who consume it; nothing is answered
    CLEAR QUEUE|QUEUEID CANCEL_QUEUE                     a node works no more
    PING, PONG, CLOSING, and SERVER_FULL before the controller hangs up

Our choices, where the documents are silent or disagree, or where rqd and librq abort:

- Fields stay until CLEAR; a payload goes with its verb.  What is unknown is stepped over.  Verbs
  without their fields or from the wrong side are ignored and counted, a request that has an id is
  answered UNDELIVERED.  64 commands without a verb are a mistake, too, and forgotten.
- A string longer than maxPayload, of whatever kind, ends the connection at its length.  So does a
  sentence of more than that and 128 KiB in all, and one not finished in sentenceSeconds.
- A queue is `queue:` and its name (protocols/names.py).  Its id is the Broker's number of that
  address, 1 to 0x7fff, and stays for the life of the journal; when all are taken, new names are
  refused.  maxMessages is for queues that RQ made first; any other keeps its own limit.
- Requests go to consumers by delivery ids of their own, 1 to 0x7fff in each connection.  By the
  queue's id if it is the first that the connection consumed, by name for any other, never both;
  and only when all its earlier CONSUMEs are answered.  librq dies of anything else.
- Highest priority first, in turn among equals; 0 is for broadcasts only.  MAX 0 is all ids.  A
  consumer that has not read what it was sent is handed nothing more until it has.
- To CONSUME again changes MAX and PRIORITY, and is answered again; EXCLUSIVE stays as it was.
- EXCLUSIVE belongs to who holds it: whoever comes later waits in line without a word.  Who leaves
  a queue with something in flight makes way at once, and may still answer.
- NOREPLY is DELIVERED when it is on disk.  A reply is passed on as it comes: nobody is promised
  more than what he has in hand.  DELIVERED is said once, before the REPLY, made up if need be.
- A consumer that is lost: what it had not DELIVERED goes back to the head; what it had goes back
  at most RETRIES times, then it is UNDELIVERED.  A consumer's UNDELIVERED offers the request to
  the others, as often as the queue has consumers, then it is UNDELIVERED.
- A requester that is lost: its queued requests are dropped, those in flight are not offered again
  and their answers swallowed; NOREPLY ones stay.  After a restart all requesters are lost: a
  request of theirs is dropped when its turn comes.
- TIMEOUT counts until the REPLY.  A NOREPLY request goes without a word when its time is over.
- REQUEST with an empty payload is UNDELIVERED (emptyPayloads: true lets it pass).  An empty REPLY
  has a PAYLOAD of length 0.
- BROADCAST is published to `topic:` and the queue's name, where other protocols hear it, too.
- Silence of pingSeconds brings a PING, the same again makes a node idle: it is handed nothing,
  broadcasts included, until it says anything.  We never hang up for it.
- CLOSING of a node: it leaves its queues, finishes what is in flight and is closed; a request after
  it is UNDELIVERED.  When the gateway ends it says CLEAR CLOSING, what nobody has yet is
  UNDELIVERED, and what is in flight has five seconds.
- librq: true on a listener: no BROADCAST, no SERVER_FULL, no empty payload; an empty reply is
  UNDELIVERED instead.
- What qlite pushed is a NOREPLY request.  A request that qlite popped is DELIVERED, and that is all
  that its requester hears.

The node (client.py) has a list of controllers.  One that is full, refuses, closes or is lost goes
to the back; the next is tried after a wait of up to 0.5 s that doubles with each failure, up to
30 s, and is a random half to whole of that.  A PING without an answer for 15 s makes it connect to
the next at once, and drop the first unless it consumes from that.  It consumes on each connection;
it asks on the newest; it never asks twice.
"""
