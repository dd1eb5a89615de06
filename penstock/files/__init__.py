"""Files and folders: where they may be; and none that people or Spark read is seen in part.

===========  ==================================================
`addresses`  which folders logs and checkpoints may be in, by their form alone
`whole`      what commands write has its name once it is whole
`parquet`    Parquet files in which Spark finds each row that matches
===========  ==================================================
"""
