"""This project's ways to decode beside other frameworks', each in a process of its own."""

from tests.benchmarks.peers.command import peers

__all__ = ["peers"]
