"""An order and its mail are written together, or not at all."""

import sqlalchemy as sa
from shop import confirm, metadata, orders

from peerd import Client

with Client.from_config() as client:
    engine = sa.create_engine(client.database.url)
    metadata.create_all(engine)

    with engine.begin() as connection:
        connection.execute(sa.insert(orders).values(id=7, customer="Ada"))
        job = client.enqueue_in(connection, confirm.with_args(7, "Ada"), unique="confirm-7")
    print(job.result(timeout=60))

    try:
        with engine.begin() as connection:
            connection.execute(sa.insert(orders).values(id=8, customer="Bob"))
            client.enqueue_in(connection, confirm.with_args(8, "Bob"), unique="confirm-8")
            raise RuntimeError("the payment failed")
    except RuntimeError as error:
        print(f"{error}: neither the order nor the mail is there")
    assert len(client.tasks.list(queue="mail")) == 1

    again = client.enqueue(confirm.with_args(9, "Cem"), unique="confirm-9", unique_for="1h")
    same = client.enqueue(confirm.with_args(9, "Cem"), unique="confirm-9", unique_for="1h")
    assert again.created
    assert not same.created
    assert same.id == again.id
