"""The programs that are measured. Each is one file; `_program` holds what they share."""
