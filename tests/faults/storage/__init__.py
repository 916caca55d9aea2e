"""The proof that no acknowledged file is lost: nodes with storage under load and faults, and an audit."""
