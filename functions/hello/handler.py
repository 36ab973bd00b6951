"""Greets whoever is named in the request."""


def main(event, context):
    """`event` is the request's JSON, None without a body; what is returned becomes the answer's JSON."""
    name = event.get("name") if isinstance(event, dict) else None
    return {"message": f"Hello, {name or 'world'}!"}
