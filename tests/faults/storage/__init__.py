"""The proof that no acknowledged file is lost: real nodes with storage under load and faults, and an audit of the end."""
