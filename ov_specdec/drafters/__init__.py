"""Where draft tokens come from. One loop serves every drafter; a new drafter is a new file here."""
