-- What each process can run.

ALTER TABLE processes ADD COLUMN handlers TEXT;
