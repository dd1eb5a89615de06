"""Files that people and Spark read: none of them is seen before it is whole.

=========  ====================================================
`whole`    what commands write has its name once it is whole
`parquet`  Parquet files in which Spark finds each row that matches
=========  ====================================================
"""
