"""Messages, asks and answers over real connections."""

from __future__ import annotations

import threading
from typing import get_args

import msgspec
import pytest

from penstock.errors import IllegalStateError
from penstock.wire import (
    AskTimeoutError,
    Client,
    FrameTooLargeError,
    Peer,
    PendingReply,
    Reply,
    Server,
    WireOptions,
)
from penstock.wire.messages import (
    AddBlock,
    AttemptEnded,
    BlocksAt,
    BlocksCopied,
    BlockServerAt,
    BlockServerRegistered,
    BlockTrace,
    CheckLogs,
    CleanupOldBlocks,
    CommitEpoch,
    CommitPlace,
    CopiesAt,
    CopyBlocks,
    DeregisterReceiver,
    EndAt,
    EndEpoch,
    EnsureBlockServer,
    EpochCommitted,
    EpochPrepared,
    Failure,
    FindBlockServer,
    FindCopies,
    FindEnd,
    FindReplicaHost,
    FindStream,
    Heartbeat,
    LettersSent,
    ListBlocks,
    LogReading,
    LogsMissing,
    MemoryPlace,
    Message,
    Ok,
    PipeReading,
    ReceivedBlockInfo,
    Refused,
    RegisterBlockServer,
    Registered,
    RegisterReceiver,
    RegisterSlot,
    ReleaseBlocks,
    ReplicaHostAt,
    ReplicaPlace,
    ReportAddresses,
    ReportDropped,
    ReportError,
    ReportFullLog,
    ReportRateStatus,
    RestartReceiver,
    SealBlock,
    SegmentPlace,
    SendLetters,
    ShownBlock,
    SkippedBlock,
    SlowBlock,
    StartAttempt,
    StopBlockServer,
    StopReceiver,
    StreamAt,
    Subscribed,
    SubscribeTask,
    TaskBlocks,
    TaskFailed,
    TaskWaits,
    TimerDue,
    UpdateRateLimit,
)
from tests.bounds import HANG_S

ATTEMPT = "0123456789abcdef" * 2
BLOCK = ReceivedBlockInfo(
    stream_id=3,
    block_id="input-3-4294967296",
    num_records=1_000_000,
    num_bytes=(1 << 40) + 1,
    attempt=ATTEMPT,
    host="zürich",
    sequence=(1 << 63) + 5,
    memory=MemoryPlace("/dev/shm/penstock-a-b", 4096, 8192),
    segment=SegmentPlace("/var/log/3-b", 7, 4096, 8192),
    position=b"\x00\xff",
    replicas=(ReplicaPlace("other", SegmentPlace("/var/log/3-b-c", 1, 8192, 99), 1 << 63),),
)
EXAMPLES: list[Message] = [
    RegisterReceiver(0, ATTEMPT, "SocketReceiver", "host", "driver", 77),
    AddBlock(0, ATTEMPT, ()),
    AddBlock(3, ATTEMPT, (BLOCK, ReceivedBlockInfo(3, "i", 0, 0, ATTEMPT, "h", 0, None, None))),
    ReportError(1, ATTEMPT, "what", "Traceback …\n  line", permanent=True),
    DeregisterReceiver(1, ATTEMPT, "", ""),
    RegisterSlot(0, ATTEMPT, 2, (1, 3), "it was killed by SIGKILL"),
    StartAttempt(3, ATTEMPT),
    AttemptEnded(0, 3, ATTEMPT, "Traceback …\n  line"),
    ReportAddresses(3, ATTEMPT, ("tcp://host:514", "udp://host:514")),
    ReportDropped(3, ATTEMPT, 12),
    StopReceiver(),
    CleanupOldBlocks(("input-3-1", "input-3-2"), (("/var/log/3-b", 7),)),
    UpdateRateLimit(1, 12345.678),
    UpdateRateLimit(1, None, 1e9, 7),
    UpdateRateLimit(1, 5.0, None, 8, is_paused=True),
    RestartReceiver("it was asked for"),
    ReportFullLog(1, ATTEMPT, "host", 4096),
    SealBlock(),
    SendLetters(7, "a" * 32, (("3-" + "0" * 32, 1), ("3-" + "1" * 32, 5)), True),
    LettersSent(3, "0" * 32, 7, 1, ((("3-" + "1" * 32, 5), "it is not there"),)),
    ReportRateStatus(1, ATTEMPT, 7, 1 << 40, 1.5, True, 0.25, 12345.5),
    ReportRateStatus(
        1,
        ATTEMPT,
        *(7, 1 << 40, 1.5, True, 0.25, 12345.5, 1 << 50),
        PipeReading(
            1.5,
            log_s=0.25,
            latency_ms=(12.5, 80.0),
            log=LogReading(2, 1 << 40),
            traces=(BlockTrace("input-1-7", 10, 1 << 20, 1.0, 1.25, 1.5, 1.75, 2.0),),
        ),
    ),
    EnsureBlockServer(),
    RegisterBlockServer("host", ("10.0.0.1", 4711), 78),
    BlockServerRegistered(60.0),
    FindBlockServer("host"),
    SkippedBlock(0, "input-0-5", "no host has it"),
    SlowBlock(0, "input-0-5", 3.5, "host", "memory /m: gone", 1_700_000_000_000, True),
    FindStream("clicks", 1_700_000_000_000),
    StreamAt(0, "epoch", 3, 7, "arrow", b"schema", 4, 5),
    FindEnd(0, "epoch", "consumer", 3, 7, 1000, None),
    EndAt(7, 1000, 3, 9, 400, 1200),
    ListBlocks(0, "epoch", "consumer", 3, 7, "phantom"),
    BlocksAt(3, (BLOCK,), (1_700_000_000_000,), {"host": ("10.0.0.1", 4711)}),
    CommitPlace(0, "epoch", "consumer", 7),
    BlockServerAt(("10.0.0.1", 4711), True),
    BlockServerAt(None, False),
    FindCopies(3, "input-3-7"),
    CopiesAt(BLOCK.replicas),
    FindReplicaHost(3, ATTEMPT, "host", ("gone", "full")),
    ReplicaHostAt("other", ("10.0.0.2", 4711), False, False),
    ReplicaHostAt(None, None, True, True),
    ReleaseBlocks((ATTEMPT,), (("/var/log/3-b", 7),)),
    CopyBlocks(7, "other", ("10.0.0.2", 4711), (BLOCK,)),
    BlocksCopied(7, (BLOCK.replicas[0], None), "it is not there", is_refused=True),
    CheckLogs(("/var/log/3-a", "/var/log/3-b")),
    LogsMissing("host", ("/var/log/3-a",)),
    StopBlockServer(remove_files=True),
    SubscribeTask(0, 1, ATTEMPT, "host", 78),
    Subscribed("0123456789abcdef" * 2),
    ShownBlock(1, ATTEMPT, "input-1-7", b"\x00a block"),
    TaskBlocks(((7, BLOCK, 1), (9, BLOCK, 2))),
    EndEpoch(3, 10, 2, is_logged=True),
    EpochPrepared(0, 1, ATTEMPT, 3),
    CommitEpoch(3),
    EpochCommitted(0, 1, ATTEMPT, 3, 1000, 2, 1, 1_700_000_000_000),
    TimerDue(0, 1, ATTEMPT, 1_700_000_000_000),
    TimerDue(0, 1, ATTEMPT, None),
    TaskWaits(0, 1, ATTEMPT, "the sink"),
    TaskFailed(0, 1, ATTEMPT, "the function failed", "Traceback", permanent=True),
    Ok(),
    Registered(5 << 32, b"\x93\x01\x02\x03", 1e6),
    Registered(0, None, None),
    Registered(0, None, None, 1e9, 7),
    Registered(0, None, None, None, 8, is_paused=True),
    Refused("no"),
    Failure("not now"),
    Heartbeat(),
]


def test_there_is_an_example_of_every_message() -> None:
    assert {type(message) for message in EXAMPLES} == set(get_args(Message))


def test_what_is_sent_cannot_be_changed_and_is_told_by_its_name() -> None:
    for part in (BLOCK, BLOCK.memory, BLOCK.segment, BLOCK.replicas[0]):
        assert type(part).__struct_config__.frozen
    for kind in map(type, EXAMPLES):
        assert kind.__struct_config__.frozen
        assert kind.__struct_config__.tag == kind.__name__


class _OlderReport(msgspec.Struct, frozen=True, tag="ReportRateStatus"):
    """A report as it was before it could carry a `pipe`, and as a later version may read it."""

    stream_id: int
    attempt: str
    rate_version: int
    records: int
    waited_s: float
    is_waiting: bool
    queue_fill: float
    at_s: float
    bytes: int = 0


def test_a_report_with_and_without_what_threads_wait_for_is_understood_by_both_sides() -> None:
    older = _OlderReport(1, ATTEMPT, 7, 5, 1.5, True, 0.25, 12345.5, 9)
    newer = ReportRateStatus(1, ATTEMPT, 7, 5, 1.5, True, 0.25, 12345.5, 9, PipeReading(2.5))
    decode, encode = msgspec.msgpack.decode, msgspec.msgpack.encode
    assert decode(encode(newer), type=_OlderReport) == older
    assert decode(encode(older), type=Message) == msgspec.structs.replace(newer, pipe=None)
    # A sum that a later version adds at the end is passed over, one that is missing is 0.
    assert decode(encode([1.5, 2.5]), type=PipeReading) == PipeReading(1.5, 2.5)
    longer = [*msgspec.to_builtins(PipeReading(1.5)), "later"]
    assert decode(encode(longer), type=PipeReading) == PipeReading(1.5)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_arrives_as_it_was_both_ways(message, make_server, make_client, recorder):
    server = make_server()
    recorder.answer = lambda peer, asked: asked
    got: list[Message] = []
    arrived = threading.Event()

    def on_message(received: Message) -> None:
        got.append(received)
        arrived.set()

    client = make_client(server.start(), on_message=on_message)
    client.connect()
    if isinstance(message, Heartbeat):  # taken by the connection itself
        client.send(message)
        assert client.ask(Ok()) == Ok()
        assert recorder.messages() == [Ok()]
        return
    assert client.ask(message) == message
    client.send(message)
    recorder.wait_for(lambda: len(recorder.seen) == 2)
    assert recorder.messages() == [message, message]
    recorder.peers[0].send(message)
    assert arrived.wait(HANG_S)
    assert got == [message]


def test_asks_and_sends_of_a_peer_are_seen_in_their_order(make_server, make_client, recorder):
    client = make_client(make_server().start())
    client.connect()
    sent: list[Message] = []
    futures = []
    for number in range(3000):
        message = DeregisterReceiver(number, ATTEMPT, "", "")
        sent.append(message)
        if number % 3:
            futures.append(client.ask_async(message))
        else:
            client.send(message)
    for future in futures:
        assert future.result(HANG_S) == Ok()
    assert recorder.messages() == sent


def test_many_threads_share_a_client_and_each_gets_its_own_answers(
    make_server, make_client, recorder
):
    recorder.answer = lambda peer, message: message
    client = make_client(make_server().start())
    client.connect()
    wrong: list[object] = []

    def work(stream: int) -> None:
        for number in range(200):
            message = DeregisterReceiver(stream, ATTEMPT, str(number), "")
            if client.ask(message) != message:
                wrong.append(message)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert not wrong
    assert len(recorder.seen) == 1600


def test_a_message_of_many_megabytes_arrives_whole(make_server, make_client, recorder):
    recorder.answer = lambda peer, message: message
    client = make_client(make_server().start())
    client.connect()
    for size in (1, 65_530, 65_536, 1 << 20, (8 << 20) - 100):
        message = Refused("x" * size)
        assert client.ask(message) == message


def test_a_message_over_the_limit_is_refused_where_it_is_made(make_server, make_client, recorder):
    options = WireOptions(max_frame_bytes=1000)
    client = make_client(make_server(options=options).start(), options=options)
    client.connect()
    with pytest.raises(
        FrameTooLargeError, match=r"1000 bytes: raise spark.penstock.maxFrameSize"
    ) as caught:
        client.ask(Refused("x" * 1000))
    assert caught.value.limit_bytes == 1000
    assert client.ask(Ok()) == Ok()
    with pytest.raises(FrameTooLargeError):
        recorder.peers[0].send(Refused("x" * 1000))
    recorder.answer = lambda peer, message: Refused("x" * 1000)
    answer = client.ask(Ok())
    assert isinstance(answer, Failure)
    assert "1000 bytes" in answer.reason


class Handlers:
    """One handler per way to answer, chosen by the message."""

    def __init__(self) -> None:
        self.server: Server | None = None
        self.waiting: list[PendingReply] = []

    def on_message(self, peer: Peer, message: Message) -> Reply:
        if isinstance(message, ReportError):
            raise LookupError("no such stream")
        if isinstance(message, DeregisterReceiver):
            return self.later(message)
        if isinstance(message, AddBlock):
            pending = PendingReply()
            self.waiting.append(pending)
            if len(self.waiting) == 3:
                threading.Thread(target=self.resolve).start()
            return pending
        if isinstance(message, StopReceiver):
            return None
        return Ok()

    async def later(self, message: DeregisterReceiver) -> Message:
        if message.error:
            raise LookupError(message.error)
        return Refused(message.message)

    def resolve(self) -> None:
        assert self.server is not None
        self.server.resolve([(pending, Ok()) for pending in self.waiting])
        # A second answer to the same ask changes nothing.
        self.server.resolve([(pending, Failure("twice")) for pending in self.waiting])

    def on_disconnect(self, peer: Peer) -> None:
        raise RuntimeError("a handler that fails here harms nobody")


def test_a_handler_may_answer_at_once_later_or_from_another_thread(make_server, make_client):
    handlers = Handlers()
    handlers.server = server = make_server(handler=handlers)
    client = make_client(server.start())
    client.connect()
    assert client.ask(Ok()) == Ok()
    assert client.ask(DeregisterReceiver(0, ATTEMPT, "later", "")) == Refused("later")
    futures = [client.ask_async(AddBlock(0, ATTEMPT, ())) for _ in range(3)]
    assert [future.result(HANG_S) for future in futures] == [Ok()] * 3
    assert client.ask(Ok()) == Ok()


def test_an_error_in_a_handler_is_a_failure_for_the_asker_and_the_server_lives(
    make_server, make_client, caplog
):
    address = make_server(handler=Handlers()).start()
    client: Client = make_client(address)
    client.connect()
    for message in (
        ReportError(0, ATTEMPT, "", ""),
        DeregisterReceiver(0, ATTEMPT, "", "no such stream"),
    ):
        caplog.clear()
        assert client.ask(message) == Failure("LookupError: no such stream")
        assert any(record.exc_info for record in caplog.records)
        assert type(message).__name__ in caplog.text
    assert isinstance(client.ask(StopReceiver()), Failure)
    client.send(ReportError(0, ATTEMPT, "", ""))
    client.close()  # on_disconnect raises
    other = make_client(address)
    other.connect()
    assert other.ask(Ok()) == Ok()


def test_an_ask_that_is_not_answered_names_message_peer_and_seconds(make_server, make_client):
    server = make_server(handler=Handlers())
    host, port = server.start()
    client = make_client((host, port))
    client.connect()
    with pytest.raises(AskTimeoutError, match=rf"AddBlock.*{host}:{port}.*0\.1 s") as caught:
        client.ask(AddBlock(0, ATTEMPT, ()), 0.1)
    assert caught.value.timeout_s == 0.1
    assert isinstance(caught.value, TimeoutError)
    # A long ask before a short one: each ends in its own time.
    long = client.ask_async(AddBlock(0, ATTEMPT, ()), 30.0)
    with pytest.raises(AskTimeoutError):
        client.ask_async(DeregisterReceiver(0, ATTEMPT, "", ""), 0.0).result(HANG_S)
    assert not long.done()
    assert client.ask(Ok()) == Ok()


def test_a_callback_that_would_wait_for_itself_is_told_so(make_server, make_client, recorder):
    caught: list[BaseException] = []
    done = threading.Event()
    client: Client

    def on_message(message: Message) -> None:
        try:
            client.ask(Ok())
        except IllegalStateError as error:
            caught.append(error)
        done.set()

    client = make_client(make_server().start(), on_message=on_message)
    client.connect()
    client.ask(Ok())
    recorder.peers[0].send(StopReceiver())
    assert done.wait(HANG_S)
    assert "ask_async" in str(caught[0])


def test_a_peer_with_too_many_open_asks_is_read_no_further_until_answers_go_out(
    make_server, make_client
):
    class Holder:
        def __init__(self) -> None:
            self.held: list[PendingReply] = []
            self.most = 0
            self.full = threading.Event()

        def on_message(self, peer: Peer, message: Message) -> Reply:
            pending = PendingReply()
            self.held.append(pending)
            self.most = max(self.most, len(self.held))
            if len(self.held) == 8:
                self.full.set()
            return pending

        def on_disconnect(self, peer: Peer) -> None: ...

    holder = Holder()
    server: Server = make_server(handler=holder, options=WireOptions(max_pending_asks=8))
    client = make_client(server.start())
    client.connect()
    futures = [client.ask_async(AddBlock(0, ATTEMPT, ())) for _ in range(100)]

    def release() -> None:
        held, holder.held = holder.held, []
        server.resolve([(pending, Ok()) for pending in held])

    assert holder.full.wait(HANG_S)
    while not all(future.done() for future in futures):
        released = threading.Event()
        server.call(release)
        server.call(released.set)
        assert released.wait(HANG_S)
    assert holder.most == 8
