"""A shop in two datacenters: which orders were paid in time, which were not, and what each customer spends."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from isthmus.streams import App, Record

DUE_S = 600  # a payment belongs to an order that is at most ten minutes older
GRACE_S = 300  # the datacenters' records may arrive so far out of order
HOUR_S, DAY_S = 3600, 86_400


class Order(Record, coerce=True):
    id: str
    customer: str
    cents: int
    at: datetime


class Payment(Record, coerce=True):
    order: str
    cents: int
    at: datetime


def time_ms(value: Order | Payment) -> int:
    return round(value.at.timestamp() * 1000)


app = App("shop", on_error="dead_letter")  # what is no order and no payment goes to the topic shop-dead-letters
orders = app.topic("fra.orders", "nyc.orders", key_type=str, value_type=Order, timestamp=time_ms)
payments = app.topic("fra.payments", "nyc.payments", key_type=str, value_type=Payment, timestamp=time_ms)


class Settled(Record):
    """What became of an order. customer: nobody, of a payment whose order did not come or is too old."""

    order: str
    customer: str
    cents: int
    paid: bool


def settle(order: Order | None, payment: Payment | None) -> Settled:
    if order is not None:
        return Settled(order.id, order.customer, order.cents, paid=payment is not None)
    assert payment is not None  # one of them is there
    return Settled(payment.order, "", payment.cents, paid=True)


settled = app.stream(orders).outer_join(
    app.stream(payments), before=0, after=DUE_S, grace=GRACE_S, value=settle, name="settled"
)
late, paid, unpaid = settled.branch(lambda each: not each.customer, lambda each: each.paid)
late.to("late-payments")
unpaid.to("unpaid-orders")
settled.late.to("late-records")

by_customer = paid.group_by(lambda each: each.customer, name="by-customer")
revenue = by_customer.tumbling(HOUR_S, grace=GRACE_S, retention=DAY_S).sum(lambda each: each.cents, name="revenue")
revenue.current().to("revenue-by-hour")

spent = app.Table("spent", key_type=str, value_type=int, default=int, help="Cents that each customer has paid.")


@app.agent(by_customer)
async def add_up(stream: Any) -> None:
    async for customer, each in stream.items():
        spent[customer] += each.cents


@app.timer(5)
async def say_who_spends_most() -> None:
    for customer, cents in sorted(spent.items(), key=lambda row: -row[1])[:3]:
        print(f"{customer} has spent {cents / 100:.2f}")


@app.page("/customers/{customer}/")
@app.table_route(table=spent, match_info="customer")
async def customer_page(web: Any, request: Any, customer: str) -> Any:
    return web.json({"customer": customer, "spent": spent[customer]})
