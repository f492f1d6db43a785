"""Ways to decode, of this project and of other frameworks, alone or in a process of their own."""
