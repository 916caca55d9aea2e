-- What each process can run.

ALTER TABLE processes ADD COLUMN handlers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
