"""A made-up fleet whose truth is known: for benchmarks and tests of what is found in large histories."""
