"""Files with copies on several nodes: `disk` is what one disk holds, without a database or a network."""
