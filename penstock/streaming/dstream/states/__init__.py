"""States: what streams keep from batch to batch, and the RDDs that are saved of them.

What must hold: the state of a batch is made of that of the batch before, and of its own records,
each once. With a checkpoint directory it is saved now and then, so that neither a lineage nor what
a restart reads grows with the age of the program.

==================  ==============================================================================
`state`             `State` and `StateSpec`, which programs use
`map_with_state`    the stream of `mapWithState`
`stateful`          nodes of states, and of windows that are states
`state_saver`       when states are saved; waiting for a full disk
`rdd_files`         RDDs that are saved, and read back
==================  ==============================================================================
"""
