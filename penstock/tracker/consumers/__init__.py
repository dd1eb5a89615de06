"""What reads streams by places: queries that ask for blocks, and functions that are sent them.

What must hold:

- *Each has a place of its own* in the ledger (`penstock.tracker.ledger.places`), and takes nothing
  from the others.
- *What is unread is bounded* where the user wants it to be: the stream's receiver waits (I7).
- *An epoch is logged before it counts*; what a task did of one that is not is done again.

Layout:

- ``place_service``: what is answered to readers by places; whose receivers wait for them.
- ``epochs``: the epochs of a stream whose blocks are given to a function as they come.
  ``continuous_streams``: the tasks of these streams.
"""
