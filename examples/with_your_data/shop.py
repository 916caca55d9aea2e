"""A shop: its table of orders, and the mails that follow an order."""

import sqlalchemy as sa

from peerd import Queue

metadata = sa.MetaData()
orders = sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("customer", sa.Text))

mail = Queue("mail")


@mail.task(retry_on=(ConnectionError,))
async def confirm(order: int, customer: str) -> str:
    """Send the confirmation; here it is only worded."""
    return f"Dear {customer}, your order {order} has arrived."
