"""Other frameworks as methods of the benchmark, measured as this project's own are."""
