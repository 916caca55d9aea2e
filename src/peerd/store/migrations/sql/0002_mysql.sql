-- Upgrading node by node: which code may work with the tables, and what each node's code knows.

ALTER TABLE peerd_version ADD COLUMN oldest VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin;

ALTER TABLE nodes ADD COLUMN revision VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin;
