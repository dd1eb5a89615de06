"""Forms of a receiver: what an author may write in place of a subclass of `Receiver`.

What must hold
--------------

* Each form becomes a `Receiver` before it starts: behind that nothing knows of forms.
* What was meant as a receiver and is none is an error where it is given, which says what is.
* A receiver that is a thread has a stop with a bound, and what its function raises reaches the
  driver, as from `onStart`.

Map
---

====================  ============================================================================
file                  holds
====================  ============================================================================
`short_forms`         what else is taken as a receiver: generator functions, classes with ``run``
`function_receivers`  what these become; coroutines on an event loop
`threaded`            `ThreadedReceiver`: one that is a thread, with a bounded stop, as most are
`socket_receivers`    the receivers of lines and of serialized objects from a socket
====================  ============================================================================
"""
