"""MQServer: queues of several kinds, stored messages from user to user, and who is there.

The wire, in a page.  A frame is `MID|TYPE|1|LEN|FLAGS|CRC|DATA` and two NULs.  DATA has been
through an escape encoder, after which it holds neither a NUL nor a quote; LEN and CRC (zlib's) are
of what came out.  The fields of DATA are separated by a space, and a payload, with its length
before it, is the last.  Each side counts its own MIDs from 1; ACK, ERROR and QUEUEINFO have the MID
of what they answer.  FLAGS: 1 asks for an ACK when the message is accepted, 2 when it is processed.

    SRVCAP, CLNTCAP   S, C   the salt, and what each side can do; then
    AUTH              C      the user and HMAC-SHA256 of the salt, with the password as the key
    APPID             C      which applications the user has; then the stored messages come one by
                             one, each after the ACK of the one before, and then a PRESENCE
    NOTIFY            C      +user, -user, +#queue, -#queue: of whom PRESENCE shall tell
    PRESENCE          S      +user and his applications, -user, #queue
    SENDTOCLNT        C      to a user: delivered, or stored while he is away; he has it as
    MSGFROMCLNT       S      until he acknowledges it
    CREATEQUEUE, FINDQUEUE, JOINQUEUE, PARTQUEUE, ALTERQUEUE   C, answered with ACK or QUEUEINFO
    SENDTOQUEUE       C      to a queue; members have it as
    MSGFROMQUEUE      S      by itself, or from a PULL queue when they ask for it with
    GETFROMQUEUE      C      answered with an ACK that says how many follow
    ACK, ERROR        both

An ERROR has an id and a text.  EFRAME, EVERSION, ESTATE and ETOOBIG are followed by the end, ECRC,
EDATA, ETYPE, ESYNTAX and all refusals are not.

Our choices, where the document is silent:

- A BROADCAST queue is the topic of its name, a PULL or round robin queue (128) the queue of its
  name, a user's mailbox is `user:` and his name: other protocols meet MQServer there.  Of two
  addresses of one name, the one that MQServer made counts, else the topic.
- What another protocol made has no owner and cannot be altered.  What it keeps for later readers
  is shown to whoever joins.
- An ACK of acceptance comes when the message is on disk.
- The kind of a queue does not change.  A round robin queue takes no filter.
- A user may be logged in once, at whichever listener; his second login is `-1|already logged in`.
- Numbers of messages count from 1 for each queue and are never used again; a restart of the gateway
  may skip some.
- MAXDATA is in the banner if it is not a megabyte.  Types may be numbers or small letters.
- Who may not publish may not send, who may not subscribe may not join: EPERM.
- EBUSY is a full disk, too many logins under way, or more than 1000 messages not acknowledged.
- A client without the capability for presence is told the first PRESENCE only.
"""
