"""The answers of the page, one module a subject; each exports its routes as `ROUTES`."""
