"""Reading peerd.toml and the environment: parsing, validation, derived settings and every problem at once."""
