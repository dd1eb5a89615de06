"""Figures of single sources, each beside a bare loop of the same client: ``python -m`` one."""
