"""`python -m ov_specdec` is the command line."""

from ov_specdec.cli import main

main()
