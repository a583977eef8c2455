"""The cleaner threads: how they are started, stopped, resized, throttled and measured."""
