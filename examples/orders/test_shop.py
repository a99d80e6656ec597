import pytest
from shop import Order, Payment, Settled, app

from isthmus.streams import TestDriver, TestRecord


@pytest.fixture
def driver():
    with TestDriver(app, partitions=2) as driver:
        yield driver


def order(id, customer, cents, at):
    return TestRecord(Order(id, customer, cents, f"2026-03-02T{at}Z"), key=id)


def payment(order, cents, at):
    return TestRecord(Payment(order, cents, f"2026-03-02T{at}Z"), key=order)


def values(driver, topic):
    return [record.value for record in driver.read(topic)]


def test_an_order_is_paid_in_the_other_datacenter(driver, capsys):
    driver.send("fra.orders", order("f1", "ann", 3000, "09:00:00"), order("f2", "ann", 500, "09:01:00"))
    driver.restart()  # what the join keeps comes back
    driver.send("nyc.payments", payment("f1", 3000, "09:05:00"), payment("f2", 500, "10:00:00"))
    assert driver.table("spent") == {"ann": 3000}
    assert driver.page("/customers/ann/").json() == {"customer": "ann", "spent": 3000}
    [hour] = values(driver, "revenue-by-hour")
    assert (hour["key"], hour["value"]) == ("ann", 3000)
    driver.advance(5)
    assert "ann has spent 30.00" in capsys.readouterr().out


def test_what_is_not_paid_in_time_is_told(driver):
    driver.send("fra.orders", order("f1", "bob", 1250, "09:00:00"))
    driver.send("fra.payments", payment("f1", 1250, "09:10:01"))  # a second too late
    assert values(driver, "unpaid-orders") == values(driver, "late-payments") == []  # not known yet
    driver.send("fra.orders", order("f3", "cid", 1, "09:30:00"), order("f4", "cid", 1, "09:30:00"))
    driver.advance(6)  # topics that rest are not waited for
    assert values(driver, "unpaid-orders") == [Settled("f1", "bob", 1250, paid=False)]
    assert values(driver, "late-payments") == [Settled("f1", "", 1250, paid=True)]
    assert driver.table("spent") == {}


def test_what_is_no_order_stops_nothing(driver):
    driver.send("fra.orders", TestRecord(b'{"id": "f1"}', key="f1"), order("f2", "ann", 500, "09:01:00"))
    [dead] = driver.read(app.dead_letters)
    assert dead.value == b'{"id": "f1"}'
    driver.send("fra.payments", payment("f2", 500, "09:02:00"))
    assert driver.table("spent") == {"ann": 500}
