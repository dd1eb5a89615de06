#!/bin/sh
# dynalite 4.0.0 (npm; a double of DynamoDB): an update that removes two elements of a list removes another one.
#
# The places in an update are those of the item before it: the developer guide's own example removes [1] and [2] of
# Chisel, Hammer, Nails, Screwdriver, Hacksaw, and Hammer and Nails are gone ("Using update expressions in
# DynamoDB", REMOVE). Here the first is removed, the rest move up, and then the second place is looked for: Nails
# stays, and Screwdriver is gone. In the other order it is right. A queue of jobs in an item loses one that was not
# done, in tests that the service would pass, or the other way round. moto 5.2.5 has what the guide has. Seen:
#
#   REMOVE items[1], items[2]: dynalite Chisel Nails Hacksaw; moto Chisel Screwdriver Hacksaw
#   REMOVE items[2], items[1]: dynalite Chisel Screwdriver Hacksaw; moto Chisel Screwdriver Hacksaw
#
# Needs python3, node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || kill "$server" 2> "$work/log" || true
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "moto[dynamodb]==5.2.5" boto3==1.44.8
cd "$work"
npm install --no-audit --no-fund --silent dynalite@4.0.0
cat > server.js <<'END'
const { writeFileSync, renameSync } = require("node:fs");
const dynalite = require("dynalite");

const server = dynalite({ createTableMs: 0 });
server.listen(0, "127.0.0.1", () => {
  writeFileSync("port.part", String(server.address().port));
  renameSync("port.part", "port");
});
END
node server.js > server.log 2>&1 &
server=$!
tries=0
until [ -e port ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { cat server.log; exit 1; }
    sleep 0.1
done
cat > look.py <<'END'
import os
from pathlib import Path

import boto3
from moto import mock_aws

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
TABLE = {"TableName": "baskets"}
KEY = {"id": {"S": "a"}}
ITEMS = ("Chisel", "Hammer", "Nails", "Screwdriver", "Hacksaw")


def left(dynamo, places):
    item = {**KEY, "items": {"L": [{"S": name} for name in ITEMS]}}
    dynamo.put_item(**TABLE, Item=item)
    update = "REMOVE " + ", ".join(f"#items[{place}]" for place in places)
    dynamo.update_item(
        **TABLE, Key=KEY, UpdateExpression=update, ExpressionAttributeNames={"#items": "items"}
    )
    found = dynamo.get_item(**TABLE, Key=KEY)["Item"]["items"]["L"]
    return " ".join(part["S"] for part in found)


def both(dynamo):
    dynamo.create_table(
        **TABLE,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamo.get_waiter("table_exists").wait(**TABLE, WaiterConfig={"Delay": 1})
    return [left(dynamo, places) for places in ((1, 2), (2, 1))]


double = both(
    boto3.client("dynamodb", endpoint_url=f"http://127.0.0.1:{Path('port').read_text()}")
)
with mock_aws():
    other = both(boto3.client("dynamodb"))
for places, one, two in zip(("[1], items[2]", "[2], items[1]"), double, other, strict=True):
    print(f"REMOVE items{places}: dynalite {one}; moto {two}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
