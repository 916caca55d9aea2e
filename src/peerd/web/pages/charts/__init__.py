"""Charts as SVG, made on the server."""
