"""Pages of records."""

AT = "/api/partitions/users/0/records"


def test_a_page_continues_behind_its_last_record(page):
    first = page.get(f"{AT}?from_offset=0&count=4")
    assert [each["offset"] for each in first["records"]] == [0, 1, 2, 3]
    assert first["next_offset"] == 4
