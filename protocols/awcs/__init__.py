r"""aWCS: a room with one master, who hears every client and speaks to all or some of them.

The wire, in a page.  A frame is any bytes but NUL, and a NUL.  The first bytes of a connection say
what it is: `6 \0` a master, `aWCS\0` a client.  The server says nothing until then, and closes
without a word what is neither, a second master, and a client while there is no master.  When the
master leaves, so must all clients.

A client's frame goes to the master with the client's number, four digits or more, and a space in
front of it: `0003 hello\0`.  What a client is told comes as it is.  The master commands:

    0 text        every client is told the text
    1 3,5 text    these clients are
    2             is the server alive?
    3 3,5         close these clients
    4 3,5         let these clients send as much as they like
    5 3,5         do not, which is how it begins

The server tells the master, as if it were a client with the number 0000:

    0000 0 0003 127.0.0.1:39122    a client came; the first of these is the master itself
    0000 1 0003 1                  it is gone
    0000 2 0003 0                  it is being kicked: 0 it floods, 1 it does not read
    0000 3 42                      alive, the answer to command 2
    0000 4 42                      three seconds are over, again

A flood: each read costs a client a point, and another for every 50 bytes of it; a second takes one
off.  Over 100 the read is thrown away whole and the client is kicked.

Our choices, where the document is silent, or the servers of old did something else:

- `status_prefix: master` puts the master's own number in front of a status, as those servers did.
  `announce_master: false` does not tell the master of itself.
- Numbers go from 1 to 9999 and round, one to every connection from the moment it is there, never
  one in use.  The master may write them with any number of digits.
- A bad frame of the master's is ignored and noted.  A list of clients is read whole before anything
  is done; one comma may end it.  Clients that are not there are skipped; neither the master nor who
  has not said what it is can be named.
- A kick takes effect at once, throws away what the client had not been sent, and closes at the end
  of the reactor's turn.  Then the master hears `1`, in the order in which the kicked came.
- Before it is known what it is, a connection may send 16 bytes and take 30 seconds; floods count.
- An unfinished frame may be 8192 bytes long, the master's 131072.  One more is a kick for reason 0,
  or the end of the master.
- What a client does not read may be 8192 bytes beyond what the kernel holds, the master 262144.
  The transport's own buffer is set to that size (for the master to 64 KiB, and the rest waits with
  us).  The kernel has half a second to take what is more, in which 1 MiB may wait, 4 MiB for the
  master; then the client is kicked for reason 1, or the master dropped and the room with it.
- Because the protocol has no login, `master_from` can say which addresses may be master.
- An IPv6 address is in brackets, and who comes by a socket in the file system from 0.0.0.0:0.

The room is the address `hub:<name>` of the Broker, live only.  A client's text is published there
with its number as the sender; what the master says with `master`, and a header `to`: "all" or the
numbers.  What anybody else publishes there is told to every client, unless it has a NUL in it.  A
message that cannot be recorded because the disk fails is not delivered.  Each listener must name a
hub of its own, which the configuration sees to.
"""
