#!/bin/sh
# s3rver 3.7.1 (npm; a double of S3): who asks for the last bytes of an object gets the first ones, one more than was
# asked for; objects are not listed in the order of their names; and no condition and no checksum keeps a body out.
#
# `Range: bytes=-3` are the last three bytes (RFC 9110, 14.1.2), which is how readers of Parquet, ORC and Zip find the
# footer; here they get the beginning, and the answer says so in Content-Range as if that had been asked for. Names
# are listed in the order of their bytes in UTF-8 (S3 user guide, "Listing object keys programmatically"), where
# "-" and "." come before "/"; here what is in a folder comes first, so that a listing that goes on behind a name
# has again what was listed before it. `If-None-Match: *`, by which one of two writers wins, and a Content-MD5 that
# does not fit are passed over, where S3 refuses the body (API reference, PutObject). Seen:
#
#   last 3 of 0123456789: b'0123', bytes 0-3/10
#   from 7 on: b'789', bytes 7-9/10
#   listed: A, a/b, a-b, a.b, a0; behind a-b: a/b, a.b, a0
#   If-None-Match on an object that is there: written
#   MD5 of another body: written
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
"$work/venv/bin/pip" install -q boto3==1.44.8
cd "$work"
npm install --no-audit --no-fund --silent s3rver@3.7.1
cat > server.js <<'END'
const { writeFileSync, renameSync } = require("node:fs");
const S3rver = require("s3rver");

new S3rver({
  port: 0,
  address: "127.0.0.1",
  silent: true,
  directory: "objects",
  configureBuckets: [{ name: "bucket" }],
})
  .run()
  .then(({ port }) => {
    writeFileSync("port.part", String(port));
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
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

s3 = boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{Path('port').read_text()}",
    aws_access_key_id="S3RVER",
    aws_secret_access_key="S3RVER",
    region_name="us-east-1",
    config=Config(
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    ),
)
AT = {"Bucket": "bucket", "Key": "A"}
s3.put_object(**AT, Body=b"0123456789")
for what, wanted in (("last 3 of 0123456789", "bytes=-3"), ("from 7 on", "bytes=7-")):
    got = s3.get_object(**AT, Range=wanted)
    print(f"{what}: {got['Body'].read()}, {got['ContentRange']}")
for name in ("a-b", "a.b", "a/b", "a0"):
    s3.put_object(Bucket="bucket", Key=name, Body=b"")


def listed(**options):
    found = s3.list_objects_v2(Bucket="bucket", **options)["Contents"]
    return ", ".join(item["Key"] for item in found)


print(f"listed: {listed()}; behind a-b: {listed(StartAfter='a-b')}")
for what, options in (
    ("If-None-Match on an object that is there", {"IfNoneMatch": "*"}),
    ("MD5 of another body", {"ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}),
):
    try:
        s3.put_object(**AT, Body=b"0123456789", **options)
        print(f"{what}: written")
    except ClientError as error:
        print(f"{what}: {error.response['Error']['Code']}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
