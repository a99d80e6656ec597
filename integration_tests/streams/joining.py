"""An app whose records change their partition twice: orders with their users, and windows behind group_by."""

import os

from isthmus.streams import App

NAME = os.environ.get("APP_NAME", "joining")
app = App(NAME, broker_commit_interval=0.2, processing_guarantee=os.environ.get("APP_GUARANTEE", "at_least_once"))
source = app.stream(f"{NAME}.orders")
orders, users = source.table("orders"), app.stream(f"{NAME}.users").table("users")
orders.left_join(
    users,
    key=lambda order: order["user"].encode(),
    value=lambda order, user: [order["n"], user],
    name="named",
)
shops = source.filter(lambda order: order is not None).group_by(lambda order: order["shop"], name="by-shop")
counts = shops.tumbling(1).count(name="counts")
counts.final().to(f"{NAME}.out")
counts.late.to(f"{NAME}.late")
