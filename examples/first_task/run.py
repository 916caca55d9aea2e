"""Enqueue some tasks, and look at what became of them."""

from jobs import count_to, largest_prime_below, square, think

from peerd import Client, JobCanceled, JobFailed

with Client.from_config() as client:
    jobs = client.enqueue_many([count_to.with_args(10), square.with_args(12), largest_prime_below.with_args(1000)])
    assert [job.result(timeout=60) for job in jobs] == [10, 144, 997]

    urgent = client.enqueue(square.with_args(3), priority=100)
    assert urgent.result(timeout=60) == 9

    wishes = {
        wish: client.enqueue(think.with_args(wish)) for wish in ("second time", "later", "never mind", "impossible")
    }
    assert wishes["second time"].result(timeout=60) == "second time: after 1 failed attempts"
    assert wishes["later"].result(timeout=60) == "later: after 0 failed attempts"
    try:
        wishes["never mind"].result(timeout=60)
    except JobCanceled as error:
        print(error)
    try:
        wishes["impossible"].result(timeout=60)
    except JobFailed as error:
        print(error)
    for attempt in client.tasks.attempts(wishes["second time"].id):
        print(f"attempt {attempt.number}: {attempt.outcome}: {attempt.error}")
