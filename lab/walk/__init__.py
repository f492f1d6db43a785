"""The first hour with it: README, mistakes and pages, in a clean environment."""
