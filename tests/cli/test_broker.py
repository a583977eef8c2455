"""`logstore broker`: dynamic broker settings stored in a data directory."""


def test_settings_are_kept_and_taken_back(run):
    run("topic", "create", "users")
    done = run("broker", "alter", "--set", "log.retention.ms=30d", "--format", "json").json
    assert done == {
        "changed": [
            {
                "key": "log.retention.ms",
                "before": {"value": "", "origin": "default"},
                "after": {"value": "2592000000", "origin": "dynamic broker"},
            }
        ]
    }
    described = run("broker", "describe", "--format", "json").json["configs"]
    assert described["log.retention.ms"] == {"value": "2592000000", "origin": "dynamic broker"}
    topic = run("topic", "describe", "users", "--format", "json").json
    assert topic["configs"]["retention.ms"]["origin"] == "dynamic broker"
    assert "nothing to change" in run("broker", "alter", "--set", "log.retention.ms=30d").stdout
    shown = run("broker", "alter", "--unset", "log.retention.ms").stdout
    assert "2592000000 (dynamic broker)" in shown
    lines = run("broker", "describe", "--format", "jsonl").jsonl
    assert all(each["origin"] == "default" for each in lines)


def test_one_layer_is_seen_over_the_other(run):
    run("topic", "create", "users")
    run("broker", "alter", "--cluster-wide", "--set", "log.cleaner.threads=2")
    shown = run("broker", "describe", "--full").stdout
    assert "dynamic default" in shown
    changed = run("broker", "alter", "--set", "log.cleaner.threads=1", "--format", "jsonl").jsonl
    assert changed[0]["before"]["origin"] == "dynamic default"


def test_static_keys_are_refused(run):
    run("topic", "create", "users")
    refused = run("broker", "alter", "--set", "log.dirs=/", code=2)
    assert "log.dirs cannot be changed" in refused.stderr
    refused = run("broker", "alter", "--unset", "log.cleaner.thread", code=2)
    assert "'log.cleaner.threads'" in refused.stderr
    refused = run("broker", "alter", "--set", "log.retention.ms=a day", code=2)
    assert "log.retention.ms" in refused.stderr
    words = ("--set", "log.retention.ms=1", "--unset", "log.retention.ms")
    assert (
        "cannot be set and unset at the same time" in run("broker", "alter", *words, code=2).stderr
    )
    assert "nothing to change" in run("broker", "alter", code=2).stderr


def test_an_unknown_key_is_stored_with_a_note_and_its_value_is_not_shown(run):
    run("topic", "create", "users")
    done = run("broker", "alter", "--set", "log.cleaner.thread=secret")
    assert "unknown broker key log.cleaner.thread is stored" in done.stderr
    assert "the nearest is 'log.cleaner.threads'" in done.stderr
    described = run("broker", "describe", "--format", "json")
    assert described.json["configs"]["log.cleaner.thread"]["value"] == "(hidden)"
    assert "secret" not in done.stdout + done.stderr + described.stdout
