"""The first hour with it: README, first guesses, mistakes and pages, in a clean environment."""
