"""The first hour with it: README and pages, in a clean environment."""
