"""Whether passes over one text agree, bit by bit or closely, in the ways that texts rely on."""
