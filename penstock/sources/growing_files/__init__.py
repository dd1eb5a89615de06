"""`GrowingFilesReceiver`: the lines of files that grow, whatever rotates them; each line once.

What must hold
--------------

* A line is stored when it has ended, and not before. One whose file is gone before it ended is a
  dead letter.
* The place of each file is durable together with the lines before it: a receiver that was killed
  goes on at it. With the place goes what the file is: device, inode, a digest of its first bytes, a
  checksum of the last before the place. Only places that changed go with lines: files may be many.
* A file that was renamed is gone on with. A file that was truncated, replaced, or whose inode was
  used again is another one, read from its beginning. A copy or a compressed file of one that was
  read, with a name that is asked for, is gone on with where the reading of that one ended; lines
  that only it has are stored.
* Of receivers that share files each has some of the patterns, and the files that no pattern before
  matches: one reads all names and copies of a file, as long as one pattern matches them.
* A compressed file is unpacked to its end before a line of it is stored.
* What an idle look costs bounds how often it is done: a hundredth of a processor for the files,
  and another for looking for new ones.

A file is looked at by its size and time of change only, and read when these change: the bytes
before its place are read along, and compared.

===============  ================================================================================
`_receiver`      `GrowingFilesReceiver`, and one start of it
`_file`          which file is which, by inode and content
`_content`       what a file holds, also a compressed one
===============  ================================================================================
"""

from penstock.sources.growing_files._receiver import GrowingFilesReceiver

__all__ = ["GrowingFilesReceiver"]
