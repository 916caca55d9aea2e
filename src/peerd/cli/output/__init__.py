"""How the command line prints: formatting of values, tables, and a display that is redrawn."""
