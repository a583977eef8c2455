"""The page's JSON API, one module per subject; each exports its routes as `ROUTES`."""
