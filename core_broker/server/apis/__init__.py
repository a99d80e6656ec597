"""One file an API, named as its message; each has `handle(request, context) -> Response | Pending | None`."""
