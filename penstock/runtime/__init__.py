"""What each process of a program runs on: time, threads, pauses, memory, and which process it is.

Nothing of it knows of records. Time and threads are given out here alone, so that a test drives the
one and hears of the end of the other.

==================  ================================================================
`clock`             time, which tests drive; how long threads waited
`threads`           every thread, and what hears of its end
`event_loop`        a thread with a queue
`backoff`           pauses between tries
`checksum`          CRC-32C
`processes`         which process is meant, whether it lives, and not beyond its parent
`rate_limited_log`  log lines that repeat
`reused_memory`     buffers that are used again once no one looks into them
==================  ================================================================
"""
