"""The JSON API of the page. Each module exports its routes as `ROUTES`."""
