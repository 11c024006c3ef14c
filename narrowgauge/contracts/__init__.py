"""The lowest room: plain data that every other room may import. Standard library and numpy only."""
