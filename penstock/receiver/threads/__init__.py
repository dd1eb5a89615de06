"""Threads that receivers of one process share: an event loop for async sources, and for waits.

What must hold
--------------

* What runs on a thread for all waits for no single receiver, so that none holds up its neighbours.
  The code of async sources alone is the author's, and whose turn it is can be seen (`slot_board`).
* What a coroutine or a call here dies of reaches the receiver whose it is, and no other.

Map
---

================  ================================================================================
file              holds
================  ================================================================================
`source_loop`     one event loop for async sources
`workers`         threads for what waits
`shared_threads`  what receivers that share a process have one thread for
`slot_board`      whether a process hangs, as its keeper sees it
================  ================================================================================
"""
