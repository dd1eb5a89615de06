"""What is sent through again: `SentLetter`, and the key by which the ledger knows it.

What must hold:

- *Once.* A letter is sent when the block that has its record is in the ledger: the letter's key is
  added with it, by the same record of the driver's log. Nothing is noted before or afterwards.
- A letter of a stream's function may be in several logs, as its batch was computed again: its key
  is a digest of where it came from, which all of them have, also when those logs went and the batch
  is computed once more. The ledger keeps keys twice as long as letters are kept
  (``spark.penstock.deadLetters.maxAge``), and a letter that is older is not sent.
- What an attempt of a receiver has in hand, whose block is not in the ledger yet, it knows itself
  (`penstock.receiver.blocks.letters_again`); the blocks of one that was replaced are refused.
"""

from __future__ import annotations

import msgspec

LetterName = tuple[str, int]
"""Names a letter among all of a program: the folder of its log, and its number in it."""
SENT_BEFORE = "it was sent already; --again sends it once more"
"""Why a letter is left that was sent."""


def letter_key(name: LetterName, digest: bytes | None) -> bytes:
    """Return what a letter is known by once it was sent.

    Args:
        name: Where it is.
        digest: Its `origin_digest`.
    """
    return digest or msgspec.msgpack.encode(name)


class SentLetter:
    """The acknowledgement of a letter's record: called when the ledger has its block.

    Args:
        key: The letter's.
        refused: Why its record was discarded again; filled before the block is sealed.

    Attributes:
        key: As given.
        is_in_block: Whether it was attached to the block of its record.
        is_sent: Whether the ledger has its block.
    """

    def __init__(self, key: bytes, refused: list[BaseException]) -> None:
        self.key = key
        self.is_in_block = False
        self.is_sent = False
        self._refused = refused

    def __call__(self) -> None:
        """Take note that the block is in the ledger."""
        self.is_sent = True

    @property
    def is_refused(self) -> bool:
        """Whether the record was discarded again, so that the letter stays one."""
        return bool(self._refused)
