"""Dead letters: the records that fit nowhere, kept where they can be found.

What must hold
--------------

- A record that a receiver discards is in the log of dead letters, by the sync policy of its blocks,
  before anything that was stored behind it is acknowledged, and before the position that it came
  with is. While it cannot be written nothing is acknowledged: the source keeps it.
- It is in the log at least once. A receiver that is killed between the log and the acknowledgement
  is given the record again by its source, and discards it again.
- What waits to be written is bounded: a receiver that discards waits, as one that stores does.
- A program that discards nothing opens no log, and pays for one comparison a block.
- A record for which a function of a stream fails is in a log before its task ends. Each computing
  of a batch may write it; readers give it once, by its `origin`.
- A receiver that discards more than `spark.penstock.deadLetters.budget` ends for good, with what it
  took until then stored, or is paused until a person resumes it.
- A letter that is sent through again is a record of its stream once: the ledger knows it with the
  block, see `_sent`.
- Size and age are bounded for each stream of a program, by the writers of its letters. What goes
  because of that is logged. What a program wrote stays if no later start has its name (one without
  a checkpoint directory and a log folder, below a folder that programs share), and so does a log on
  HDFS that no one has closed: of neither is it known whether they are still needed.
- Nothing here unpickles a record: a reader of dead letters gets their bytes. What a receiver cannot
  unpickle is kept as its pickle. (A receiver that is asked to store letters again unpickles them,
  as the tasks of batches do with what it stored.)

Layout
------

One log of `penstock.wal` for each attempt of a receiver that discarded anything, and for each
operation of a stream and Python worker that it failed in (on HDFS: task), beside the folder of the
blocks, or where `spark.penstock.deadLetters.dir` says::

    receivedData/<stream>-<attempt>/segment-….log    the blocks
    deadLetters/<stream>-<attempt>/segment-….log     what was discarded

Below a folder that other programs may also have been given, each program has one of its own, which
`penstock.host.preparation` names; nothing that it keeps, counts or removes goes beyond that::

    <dir>/<program>/<stream>-<attempt>/segment-….log

Each record of the log, of kind 1, is one `DeadLetter` in MessagePack. A log is encrypted where the
blocks' logs are, with a cipher of its own.

The life of a dead letter
-------------------------

The record is discarded: the letter is made, and waits in the attempt's `DeadLetterWriter`. The next
block is sealed, one without records if there is none. The thread that logs blocks logs that block,
then what waits here, then hands the block on to be reported and acknowledged. From then on it is
read, by `read`, `LetterTail` or ``penstock dead-letters``, while the program runs and afterwards,
until the stream's letters are more than `spark.penstock.deadLetters.maxSize` or older than
`spark.penstock.deadLetters.maxAge`. Where the blocks are in the application's scratch folder, their
dead letters go with it when the program stops.

Modules
-------

=============  =====================================================================
`_letter`      `DeadLetter`: what is kept of a record, its bytes, and how it begins
`_writer`      `DeadLetterWriter`: the log of one attempt
`_functions`   `FunctionLetters`: the records for which a function of the program raises
`_logs`        the logs in a folder, or what can be read of them
`_retention`   what is removed when there are too many, or too old ones
`_budget`      whether a receiver discards more than it may
`_reader`      the letters of all logs in a folder; as a DataFrame
`_tail`        those that come, while they are written
`_sent`        what is sent through again, and the key by which the ledger knows it
`cli`          ``penstock dead-letters``
=============  =====================================================================
"""

from __future__ import annotations

from penstock.dead_letters._budget import BudgetMeter, DeadLetterBudgetError
from penstock.dead_letters._functions import FunctionLetters
from penstock.dead_letters._letter import (
    DeadLetter,
    Form,
    PickledRecord,
    Unreadable,
    origin_digest,
    start_of,
    start_shown,
)
from penstock.dead_letters._logs import is_program_name, program_name, program_of
from penstock.dead_letters._reader import (
    StoredLetter,
    letters,
    letters_of_log,
    read,
)
from penstock.dead_letters._sent import SENT_BEFORE, LetterName, SentLetter, letter_key
from penstock.dead_letters._tail import LetterTail
from penstock.dead_letters._writer import DeadLetterPlace, DeadLetterWriter, folder_beside

__all__ = [
    "SENT_BEFORE",
    "BudgetMeter",
    "DeadLetter",
    "DeadLetterBudgetError",
    "DeadLetterPlace",
    "DeadLetterWriter",
    "Form",
    "FunctionLetters",
    "LetterName",
    "LetterTail",
    "PickledRecord",
    "SentLetter",
    "StoredLetter",
    "Unreadable",
    "folder_beside",
    "is_program_name",
    "letter_key",
    "letters",
    "letters_of_log",
    "origin_digest",
    "program_name",
    "program_of",
    "read",
    "start_of",
    "start_shown",
]
