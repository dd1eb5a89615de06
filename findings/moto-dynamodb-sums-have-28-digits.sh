#!/bin/sh
# moto 5.2.5, its DynamoDB: a sum is rounded to 28 digits, which DynamoDB keeps to 38, and a number comes back as it
# was written, not as the number that it is.
#
# A number has up to 38 digits, and zeros before and behind are trimmed (developer guide, "Supported data types and
# naming rules", Number). The sums of an update are made with Python's Decimal and its default of 28, without an
# error: an amount with 18 places behind the point loses ten of them, and what was added is not there. A number
# of 39 digits is taken. 1.0, 1e1 and
# -0 are one key with 1, 10 and 0, which is right, and read back they are the text that came last, so
# that a test which compares with what the service sends differs. Seen:
#
#   12345678901234567890.123456789012345678 + 0.000000000000000001: 12345678901234567890.12345679
#   39 digits: accepted
#   put 1.0: read '1.0'; put 1e1: read '1e1'; put -0: read '-0'; put 1.10: read '1.10'
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "moto[dynamodb]==5.2.5" "boto3==1.44.8"
cd "$work"
cat > look.py <<'END'
import os

import boto3
from moto import mock_aws

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
TABLE = {"TableName": "accounts"}
KEY = {"id": {"S": "a"}}
with mock_aws():
    dynamo = boto3.client("dynamodb")
    dynamo.create_table(
        **TABLE,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )

    def put(number):
        dynamo.put_item(**TABLE, Item={**KEY, "n": {"N": number}})

    def get():
        return dynamo.get_item(**TABLE, Key=KEY)["Item"]["n"]["N"]

    start, more = "12345678901234567890.123456789012345678", "0.000000000000000001"
    put(start)
    dynamo.update_item(
        **TABLE,
        Key=KEY,
        UpdateExpression="SET n = n + :one",
        ExpressionAttributeValues={":one": {"N": more}},
    )
    print(f"{start} + {more}: {get()}")
    put("123456789012345678901234567890123456789")
    print("39 digits: accepted")
    seen = []
    for number in ("1.0", "1e1", "-0", "1.10"):
        put(number)
        seen.append(f"put {number}: read {get()!r}")
    print("; ".join(seen))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
