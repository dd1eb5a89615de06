#!/bin/sh
# moto 5.2.5, its S3: a body is stored that is not the one whose checksum was sent with it; and the parts of an upload
# may be listed in any order.
#
# The service compares Content-MD5 and the newer checksums with what it received and refuses a body that differs (API
# reference, PutObject and UploadPart, error BadDigest); the list of parts must be ascending (CompleteMultipartUpload,
# InvalidPartOrder). moto looks at none of them, so that a test of what a program
# does about a broken upload sees a success and an object. Seen:
#
#   put_object, MD5 of another body: stored
#   put_object, CRC32 of another body: stored
#   upload_part, MD5 of another body: stored
#   parts 2, 1: completed, begins with b'2'
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "moto[s3]==5.2.5" "boto3==1.44.8"
cd "$work"
cat > look.py <<'END'
import base64
import hashlib
import os
import zlib

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
AT = {"Bucket": "readings", "Key": "day"}
MD5 = base64.b64encode(hashlib.md5(b"right").digest()).decode()
CRC32 = base64.b64encode(zlib.crc32(b"right").to_bytes(4, "big")).decode()


def outcome(call, **arguments):
    try:
        call(**AT, **arguments)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "stored"


with mock_aws():
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=AT["Bucket"])
    put = outcome(s3.put_object, Body=b"wrong", ContentMD5=MD5)
    print(f"put_object, MD5 of another body: {put}")
    put = outcome(s3.put_object, Body=b"wrong", ChecksumCRC32=CRC32)
    print(f"put_object, CRC32 of another body: {put}")
    upload = s3.create_multipart_upload(**AT)["UploadId"]
    part = outcome(
        s3.upload_part, UploadId=upload, PartNumber=1, Body=b"wrong", ContentMD5=MD5
    )
    print(f"upload_part, MD5 of another body: {part}")
    tags = {
        place: s3.upload_part(
            **AT, UploadId=upload, PartNumber=place, Body=b"%d" % place * (5 << 20)
        )["ETag"]
        for place in (1, 2)
    }
    order = [{"PartNumber": place, "ETag": tags[place]} for place in (2, 1)]
    s3.complete_multipart_upload(**AT, UploadId=upload, MultipartUpload={"Parts": order})
    print(f"parts 2, 1: completed, begins with {s3.get_object(**AT)['Body'].read(1)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
