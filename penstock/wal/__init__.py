"""The segment log: an append-only log of records in numbered segments.

What must hold

- An append that returned is committed to the log's sync policy, and no crash that the policy
  covers takes it away (I1).
- A half-written last record is a torn tail: it is cut off in reading and said in one log line.
  A record that had been committed and does not read back is an error that names segment and
  offset. It never yields wrong bytes, and never stops the reading of the rest (I6).
- Records of one writer come back in the order of their sequences, nothing between them invented,
  nothing of a failed append once a later one succeeded.
- A record never crosses a segment. A segment's name is never used twice.
- One writer per folder, held by a lock that ends with its process; on HDFS and on an object store
  the newest writer has it, and anyone who had it before can write no more (`penstock.wal._hdfs`,
  `penstock.wal._objects`).

A folder is on a disk of this host, on HDFS or on an object store (`locate`). What differs there,
and how it is made up for, is described in `penstock.wal._hdfs` and `penstock.wal._objects`.

Layout of a folder::

    LOCK                            locked by the writer; names it
    segment-000000000001.log        a closed segment
    segment-000000000002.log        the open one: preallocated, zeros behind the last record
    segment-000000000003.log.new    being made; no segment before it is renamed
    segment-000000000001.log.damaged  put aside by `repair`

Layout of a segment, all at multiples of the log's alignment::

    header record | record | record | … | end record … trailer     (closed)
    header record | record | record | zeros                          (open, or left by a crash)

The trailer is the last 64 bytes; it lets a reader know a closed segment without reading it.
Bytes of headers, end record and trailer: `penstock.wal._segments.layout`.

The life of a segment: made under a temporary name, preallocated, its header forced, renamed,
the folder forced; only then records. When it is full or old: end record and trailer, cut to size,
forced, closed. When a write or a sync fails it is abandoned behind its last good record, and the
next segment's header says with which sequence it goes on. When its owner needs nothing of it any
more it is removed.

*Torn tail or damage?* Each record carries the highest sequence that was committed when it was
written. A bad place where sequence s should be is damage if any valid record behind it, in this
segment or a later one, knows s as committed; else it was never acknowledged and is a torn tail.
This needs no order among unforced writes.

Encryption of what is on the disk
-----------------------------------

With a cipher (`EncryptionKey.cipher`) the payloads of a log's records are encrypted, by AES-256-GCM
with a key of each segment that is derived from one master key (`penstock.wal._segments.encryption`
has the details). What must hold:

- No key is written anywhere, in no form. The header of a segment has the id of its master key,
  which tells another key from damage.
- A record decrypts in its own place only: log, segment, sequence and kind are bound to it. No nonce
  is used twice with a key, whatever fails or crashes.
- Checksums are over what is on the disk. `check`, `repair`, `remove_log` and the cleaning need no
  key. What is damaged is an error as ever; so is a record whose checksum is right and that does not
  decrypt.
- A log is encrypted throughout or not at all: a reader with a cipher takes no record in clear, and
  the reverse. What does not fit is an error when its first record is read, and changes nothing.
- Anyone who can write to the folder can still take things away, whole segments or the last records,
  or put back what they had before.

Modules
-------

========================  =======================================================================
`_writer`, `_reader`      the two ends of a log: `LogWriter`, `LogReader`
`_company`                those whose appends a group commit waits for
`_segments/`              the segments: their bytes, being written, being read; encryption
`_check`, `cli`           looking for damage and repairing it; ``penstock wal``
`_folder`                 where a log is: its address, the names in it, taking it for one process
`_options`, `_errors`     options and statistics of a log; what it raises
`_filesystem`             what the log needs of a file system; the one of this host
`_answers`                what a storage answers: gone, refused, away; and by when
`_hdfs/`                  HDFS as a file system, and the owner of a log on it
`_objects/`               an object store as a file system, and the owner of a log on it
`_owner`                  what a lock says of its owner
========================  =======================================================================

Usage::

    with LogWriter.create(folder) as log:
        place = log.append(1, b"payload")
    with LogReader.open(folder) as reader:
        for record in reader.records():
            ...
"""

from __future__ import annotations

from penstock.wal._answers import Answer, StorageAwayError, answer_of, calls_left_behind
from penstock.wal._check import check, remove_log, repair
from penstock.wal._company import Company
from penstock.wal._errors import (
    AppendTooLargeError,
    CorruptRecordError,
    EncryptionMismatchError,
    LogClosedError,
    LogFolderInUseError,
    LogFullError,
    LogLostError,
    LogWriteError,
    MissingClientError,
    UnsupportedAddressError,
    UnwritableFolderError,
    WalError,
)
from penstock.wal._filesystem import AppendFile, FileSystem, LocalFileSystem, ReadFile
from penstock.wal._folder import (
    LOCK_NAME,
    locate,
    lock_folder,
    make_folders,
    normal_address,
    owner_of,
    segment_path,
    settled,
)
from penstock.wal._hdfs.client import HadoopConfiguration
from penstock.wal._hdfs.filesystem import HdfsFileSystem
from penstock.wal._objects.clouds import object_store_help
from penstock.wal._objects.filesystem import ObjectFileSystem, has_used_objects
from penstock.wal._objects.settings import (
    STORAGE_VARIABLES,
    given_storage,
    is_storage_setting,
    storage_environment,
)
from penstock.wal._options import LogOptions, LogStatistics, SyncPolicy
from penstock.wal._reader import LogReader, SegmentInfo, no_segment
from penstock.wal._segments.encryption import (
    KEY_COMMAND_VARIABLE,
    KEY_VARIABLE,
    SEAL_SIZE,
    TAG_SIZE,
    EncryptionKey,
    LogCipher,
)
from penstock.wal._segments.layout import (
    RECORD_HEADER_SIZE,
    Record,
    RecordPlace,
    parse_record,
    record_length,
    stamp_record,
)
from penstock.wal._writer import LogWriter

__all__ = [
    "KEY_COMMAND_VARIABLE",
    "KEY_VARIABLE",
    "LOCK_NAME",
    "RECORD_HEADER_SIZE",
    "SEAL_SIZE",
    "STORAGE_VARIABLES",
    "TAG_SIZE",
    "Answer",
    "AppendFile",
    "AppendTooLargeError",
    "Company",
    "CorruptRecordError",
    "EncryptionKey",
    "EncryptionMismatchError",
    "FileSystem",
    "HadoopConfiguration",
    "HdfsFileSystem",
    "LocalFileSystem",
    "LogCipher",
    "LogClosedError",
    "LogFolderInUseError",
    "LogFullError",
    "LogLostError",
    "LogOptions",
    "LogReader",
    "LogStatistics",
    "LogWriteError",
    "LogWriter",
    "MissingClientError",
    "ObjectFileSystem",
    "ReadFile",
    "Record",
    "RecordPlace",
    "SegmentInfo",
    "StorageAwayError",
    "SyncPolicy",
    "UnsupportedAddressError",
    "UnwritableFolderError",
    "WalError",
    "answer_of",
    "calls_left_behind",
    "check",
    "given_storage",
    "has_used_objects",
    "is_storage_setting",
    "locate",
    "lock_folder",
    "make_folders",
    "no_segment",
    "normal_address",
    "object_store_help",
    "owner_of",
    "parse_record",
    "record_length",
    "remove_log",
    "repair",
    "segment_path",
    "settled",
    "stamp_record",
    "storage_environment",
]
