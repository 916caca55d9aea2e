"""How the command line prints: formatting, tables, and terminals that are resized."""
