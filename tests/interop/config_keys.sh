#!/bin/sh
# Asks Kafka for its configuration keys and writes ../data/config/kafka-* anew. The jars must be
# there already (make interop fetches them).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../data/config
ask() {
    classpath=$(cat "$here/target/$1/classpath")
    version=$(echo "$classpath" | sed 's/.*kafka-clients-\([0-9.]*\)\.jar.*/\1/')
    java -cp "$classpath" "$here/ConfigKeys.java" "$data/kafka-$version" ${2:+"$2"}
    echo "kafka-$version written"
}
ask kafka3 "$data/cases.txt"
ask kafka4
