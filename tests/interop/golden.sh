#!/bin/sh
# Writes all golden cases: golden.sh OUT_DIR [KAFKA_VERSION]. OUT_DIR must be empty or absent.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: golden.sh OUT_DIR [KAFKA_VERSION]}
version=${2:-}
set --
if [ -n "$version" ]; then
    set -- "-Dkafka.version=$version"
fi
mvn -q -f "$here/pom.xml" -Pkafka3 "$@" clean compile dependency:build-classpath \
    -Dmdep.outputFile="$here/target/writer/classpath"
exec java -cp "$here/target/writer/classes:$(cat "$here/target/writer/classpath")" golden.GoldenWriter "$out"
