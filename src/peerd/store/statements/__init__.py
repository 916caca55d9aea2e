"""Statements that bypass SQLAlchemy's execution: compiled once, executed by the driver."""
