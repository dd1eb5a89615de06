"""Inputs: where the records of streams come from.

What must hold: an input says of each batch what it took, and a batch that is made again takes the
same. What is not in the ledger of received blocks (the names of files, a program's own choice) is
in the checkpoint, or it is said that it cannot be made again.

======================  ==========================================================================
`input_operations`      the inputs, as methods of the context; the rates of all
`input_streams`         nodes of queues, receivers and direct streams
`receiver_dstream`      streams whose rate can be set: direct ones, and those of receivers
`input_dstream`         an input that a program writes
`file_input_stream`     the node of files that appear in a folder
`dead_letter_stream`    the node of the program's own dead letters
======================  ==========================================================================
"""
