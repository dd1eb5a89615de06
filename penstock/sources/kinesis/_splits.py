"""Which shards of a stream can be read now, by receivers that share them; asked in the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.sources._aws import meaning_of
from penstock.sources.kinesis._reading import (
    ENDED,
    OLDEST,
    READ_S,
    described,
    is_closed,
    made_again,
    parents_of,
    shard_of,
    split_name,
)

if TYPE_CHECKING:
    from penstock.sources.kinesis.receiver import KinesisReceiver

_log = logging.getLogger("penstock.sources.kinesis")


def splits_after(
    receiver: KinesisReceiver, places: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """Return the shards that have not ended, and whose parents have, wherever these were read.

    Args:
        receiver: Says which stream it is, and where a new one begins.
        places: The durable places of shards.

    Returns:
        Their splits, and changes of places, see `Receiver._splits_after`: where new shards begin,
        and None for those that were trimmed as a whole.

    Raises:
        AwsError: They cannot be asked for.
    """
    what = f"stream {receiver.stream!r}"
    try:
        client = receiver.account.client("kinesis", 1, READ_S)
        found = described(client, receiver.stream)
    except Exception as error:
        raise meaning_of(error, what) from error
    listed = {split_name(each["ShardId"], found.made_ms): each for each in found.shards}
    changes: dict[str, Any] = dict.fromkeys(places.keys() - listed.keys())
    for split in listed.keys() - places.keys():
        is_over = receiver.initial == "LATEST" and is_closed(listed[split])
        # What comes later than the first shards is read from its oldest record.
        changes[split] = OLDEST if places else ENDED if is_over else found.since_s(receiver.initial)
    if any(shard_of(split, found.made_ms) is None for split in places):
        _log.warning(made_again(what))
    ended = {split for split, place in (changes | dict(places)).items() if place == ENDED}
    # A parent that is not listed any more was trimmed as a whole.
    left = {each["ShardId"] for split, each in listed.items() if split not in ended}
    splits = [
        split
        for split, each in listed.items()
        if split not in ended and left.isdisjoint(parents_of(each))
    ]
    return splits, changes
