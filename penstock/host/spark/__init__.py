"""What receivers need of the Spark application that they run in, and how it is ended.

What must hold: what cannot work is said before anything starts, in words of those who can mend it;
and a JVM that does not answer keeps no stop and no exit waiting.

====================  ============================================================================
`contexts`            what a program gives as Spark, and the settings out of that
`startup_checks`      cores, and Spark's second copies of tasks
`executor_python`     the executors' Python, asked before it is needed
`logs`                Spark's own log lines of failed tasks, and its progress bar
`ending`              a step that may hang; ending Spark, which may
====================  ============================================================================
"""
