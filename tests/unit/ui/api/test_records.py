"""Pages of records."""

from logstore import TopicPartition

AT = "/api/partitions/users/0/records"


def test_a_page_continues_behind_its_last_record(page):
    first = page.get(f"{AT}?from_offset=0&count=4")
    assert [each["offset"] for each in first["records"]] == [0, 1, 2, 3]
    assert first["next_offset"] == 4


def test_a_page_without_records_continues_at_the_high_watermark(page, broker):
    broker.clean("users", force=True, roll=True)
    log = broker.log(TopicPartition("users", 0))
    assert page.get(f"{AT}?from_offset=5&key=nobody") == {
        "records": [],
        "next_offset": log.high_watermark,
        "log_start_offset": 0,
        "log_end_offset": 11,
    }
