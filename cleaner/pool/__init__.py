"""The cleaner threads: started and stopped with the log manager, resized, throttled, measured."""
