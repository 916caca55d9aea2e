"""Files that survive their servers: contents on the disks of nodes, and a catalogue of them in the database."""
