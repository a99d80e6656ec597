"""The shape of faust's example page_view: records of a model, grouped anew by a field, counted in a table."""

import os

import faust


class PageView(faust.Record):
    page: str
    user: str


app = faust.App("pages", broker=os.environ["BROKER"], topic_partitions=4, version=1)
views = app.topic("views", value_type=PageView)
counts = app.Table("counts", default=int)


@app.agent(views)
async def count(stream):
    async for view in stream.group_by(PageView.page):
        counts[view.page] += 1
