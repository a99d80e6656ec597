"""An app's topology as other programs draw it."""

from __future__ import annotations

from isthmus.streams import App, drawing


def test_names_of_any_letters_do_not_break_the_picture() -> None:
    app = App("shop")

    @app.agent(app.topic("orders"), name='the "first" <b> & #1')
    async def first(stream):
        async for _ in stream:
            ...

    drawn = drawing.of(app)
    assert '(["the #quot;first#quot; #lt;b#gt; #amp; #35;1"])' in drawn.mermaid()
    assert ">the &quot;first&quot; &lt;b&gt; &amp; #1<" in drawn.svg()
