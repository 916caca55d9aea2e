-- The indexes of tasks as they were before limits.

ALTER TABLE tasks
    DROP CONSTRAINT limit_key_form,
    DROP KEY tasks_claim,
    DROP KEY tasks_turns,
    DROP KEY tasks_due,
    DROP KEY tasks_closing,
    ADD KEY tasks_claim (status, queue, lane, claim_rank, attempts, due_at, id),
    ADD KEY tasks_due (status, due_at),
    ADD KEY tasks_closing (status, closing_at);
