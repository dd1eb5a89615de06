#!/bin/sh
# gofakes3 v1.2.0 (Go, an S3 for tests): the conditions under which S3 writes are kept for a plain put and for nothing
# else. A delete "if it is still the one that I read" deletes another's object, and two that assemble an upload "if
# there is none" both do.
#
# If-None-Match: * and If-Match are answered with 412 for PutObject. For CompleteMultipartUpload, DeleteObject,
# CopyObject and GetObject, for which S3 has them too, they are passed over. So locks and commits that rest on them pass
# their tests and are found out elsewhere, or the other way round: a range of what boto3 1.44.8 has put fails in
# the client, as the whole object's checksum comes with it; of the last 200 bytes of a short object there are none.
# Parts are put together in the order in which they are named, where S3 refuses any but the ascending. Seen:
#
#   put if there is none: 412, as it should
#   put if it is the one read before: 412, as it should
#   complete an upload if there is none: done; the object is now 'theirs'
#   read if it is another: b'theirs'
#   copy if it is another: done
#   delete if it is another: done; the object is gone
#   parts 2 and 1: done; the object is now 'second, first'
#   the last 200 of 3 bytes: InvalidRange
#   bytes 1 and 2 of 3: FlexibleChecksumError
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q boto3==1.44.8
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() { _ = http.Serve(listener, gofakes3.New(s3mem.New()).Server()) }()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	_, _ = io.ReadAll(os.Stdin)
}
END
{
    go mod init finding
    go get github.com/johannesboyne/gofakes3@v1.2.0
    go build -mod=mod -o server .
} > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, FlexibleChecksumError

OTHER = '"00000000000000000000000000000000"'
NONE = {"IfNoneMatch": "*"}
program = subprocess.Popen(["./server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
port = int(program.stdout.readline())


def connected(checked):
    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        region_name="us-east-1",
        config=Config(
            s3={"addressing_style": "path"},
            retries={"max_attempts": 0},
            response_checksum_validation=checked,
        ),
    )


store, strict = connected("when_required"), connected("when_supported")


def at(key, **more):
    return {"Bucket": "bucket", "Key": key, **more}


def tried(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        return "412, as it should" if code == "PreconditionFailed" else code
    except FlexibleChecksumError as error:
        return type(error).__name__
    return "done"


def read(key, store=store, **more):
    return store.get_object(**at(key, **more))["Body"].read()


def complete(key, numbers, body, **more):
    upload = {"UploadId": store.create_multipart_upload(**at(key))["UploadId"]}
    parts = [
        {"PartNumber": n, "ETag": store.upload_part(**at(key, Body=body(n), PartNumber=n, **upload))["ETag"]}
        for n in numbers
    ]
    store.complete_multipart_upload(**at(key, MultipartUpload={"Parts": parts}, **upload, **more))


try:
    store.create_bucket(Bucket="bucket")
    store.put_object(**at("lock", Body=b"ours"))
    print("put if there is none:", tried(store.put_object, **at("lock", Body=b"theirs", **NONE)))
    print("put if it is the one read before:", tried(store.put_object, **at("lock", Body=b"x", IfMatch=OTHER)))
    done = tried(complete, "lock", (1,), lambda _: b"theirs", **NONE)
    print(f"complete an upload if there is none: {done}; the object is now {read('lock').decode()!r}")
    print("read if it is another:", read("lock", IfMatch=OTHER))
    source = {"Bucket": "bucket", "Key": "lock"}
    copied = tried(store.copy_object, **at("copy", CopySource=source, CopySourceIfMatch=OTHER))
    print("copy if it is another:", copied)
    done = tried(store.delete_object, **at("lock", IfMatch=OTHER))
    left = tried(store.head_object, **at("lock"))
    print(f"delete if it is another: {done}; the object is {'gone' if left == '404' else left}")
    done = tried(complete, "parts", (2, 1), {1: b"first", 2: b"second, "}.get)
    print(f"parts 2 and 1: {done}; the object is now {read('parts').decode()!r}")
    store.put_object(**at("three", Body=b"abc"))
    print("the last 200 of 3 bytes:", tried(read, "three", Range="bytes=-200"))
    print("bytes 1 and 2 of 3:", tried(read, "three", strict, Range="bytes=1-2"))
finally:
    program.stdin.close()
    program.wait(30)
END
timeout 100 "$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
