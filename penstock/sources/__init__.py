"""Sources: the receivers and streams that come with the project.

A receiver here is an ordinary `penstock.receiver.Receiver`: it uses what any author of a source
can use. What must hold for each: it reads without a buffer of its own (I7), it can be stopped
while it waits for its source, and each way in which its source fails is a restart after the delay
with a message of its own, never a tight loop and never a silent end.

`kafka` has Kafka's streams and receiver; the socket receivers are those of `penstock.receiver`.
"""

from penstock.receiver.socket_receivers import (
    ConvertingSocketReceiver,
    RawSocketReceiver,
    SocketReceiver,
)

__all__ = ["ConvertingSocketReceiver", "RawSocketReceiver", "SocketReceiver"]
