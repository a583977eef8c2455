"""Parts of pages in docs/ that `make docs` writes, between two comments."""


def replaced(page: str, name: str, text: str) -> str:
    """Return a page with another text between the comments of that name."""
    begin, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"
