-- Upgrading node by node: which code may work with the tables, and what each node's code knows.

ALTER TABLE peerd_version ADD COLUMN oldest TEXT COLLATE "C";

ALTER TABLE nodes ADD COLUMN revision TEXT COLLATE "C";
