"""In which format each operation of a transformer block may be computed or stored: a table, and what it rests on."""
