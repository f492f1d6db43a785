"""The laboratory: what measures this project, and is no part of it."""
