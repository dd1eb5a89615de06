"""The segments of a log: their bytes, one being written, one being read, one after the other.

What must hold: a segment has one writer, which writes it once, from its beginning to its end; what
fails ends it. A record that is read is whole and of this place: its checksums, its segment and its
sequence say so.

==============  =================================================================================
`layout`        the bytes of a segment: headers, end record, trailer
`encryption`    keys and ciphers; what is appended, encrypted on its way to the disk
`writer`        one segment that is being written
`reader`        one that is being read
`chain`         the segments of one writer, one after the other
==============  =================================================================================
"""
