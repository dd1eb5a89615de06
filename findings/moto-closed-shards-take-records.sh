#!/bin/sh
# moto 5.2.5, its Kinesis: a shard that was split still takes records, and never ends; and of shards that are merged
# every record is read twice.
#
# After a split the records flow to the new shards, and the old one is closed (Kinesis, "Complete the resharding
# action"); whoever has read it to the end gets a null NextShardIterator and the child shards (API reference,
# GetRecords), which is what tells a consumer to go on there, and a record stays in the shard it came to. Here each
# new record goes to the closed shard for ever, behind the EndingSequenceNumber that ListShards states; the
# iterator never becomes null, so a consumer that waits for the end of a parent waits for ever, and one that skips
# closed shards misses all; a merged shard begins with copies of what its parents have. Seen:
#
#   split: closed shard 0, ends at 5; record 6 comes into shard 0
#   read to its end: next iterator null: False, child shards: None
#   in the children: 0 records
#   10 records, read from all shards after a merge: 20
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "moto==5.2.5" "boto3==1.44.8"
cd "$work"
cat > look.py <<'END'
import os

import boto3
from moto import mock_aws

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
STREAM = {"StreamName": "readings"}


def shards(kinesis):
    return kinesis.list_shards(**STREAM)["Shards"]


def read(kinesis, shard):
    start = kinesis.get_shard_iterator(
        **STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )
    return kinesis.get_records(ShardIterator=start["ShardIterator"])


def number(shard):
    return int(shard["ShardId"][-12:])


def total(kinesis):
    return sum(len(read(kinesis, shard)["Records"]) for shard in shards(kinesis))


with mock_aws():
    kinesis = boto3.client("kinesis")
    kinesis.create_stream(**STREAM, ShardCount=1)
    for place in range(5):
        kinesis.put_record(**STREAM, Data=b"%d" % place, PartitionKey="meter")
    parent = shards(kinesis)[0]
    kinesis.split_shard(
        **STREAM, ShardToSplit=parent["ShardId"], NewStartingHashKey=str(1 << 127)
    )
    parent, *children = shards(kinesis)
    put = kinesis.put_record(**STREAM, Data=b"new", PartitionKey="meter")
    print(
        f"split: closed shard {number(parent)}, ends at "
        f"{parent['SequenceNumberRange']['EndingSequenceNumber']}; "
        f"record {put['SequenceNumber']} comes into shard {number(put)}"
    )
    after = kinesis.get_records(ShardIterator=read(kinesis, parent)["NextShardIterator"])
    print(
        f"read to its end: next iterator null: {after.get('NextShardIterator') is None}, "
        f"child shards: {after.get('ChildShards')}"
    )
    print(f"in the children: {sum(len(read(kinesis, child)['Records']) for child in children)} records")

with mock_aws():
    kinesis = boto3.client("kinesis")
    kinesis.create_stream(**STREAM, ShardCount=2)
    for place in range(10):
        kinesis.put_record(**STREAM, Data=b"%d" % place, PartitionKey=str(place))
    first, second = (shard["ShardId"] for shard in shards(kinesis))
    kinesis.merge_shards(**STREAM, ShardToMerge=first, AdjacentShardToMerge=second)
    print(f"10 records, read from all shards after a merge: {total(kinesis)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
