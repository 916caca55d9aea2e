"""Small defects that are written into the code, to measure what the tests are worth: `make mutants`."""
