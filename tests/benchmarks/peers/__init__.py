"""This project's ways to decode and other frameworks', alone or in a process of their own."""
