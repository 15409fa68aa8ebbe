#!/bin/sh
# search-node.sh LIB WORK PORT [setting=value ...]: one plain OpenSearch node on 127.0.0.1:PORT, in
# the foreground, until standard input ends or a signal comes (so it never outlives the test that
# started it).
#
# LIB   the folder of jars that `fetch opensearch2` or `fetch opensearch3` prints
# WORK  data and logs; a folder of its own, made if it is not there
# JAVA  the java to run it with (default: java); OpenSearch 3 needs 21 or later
# HEAP  default 1g.  TIER=4 for the full compiler (default 1: half the time to start)
# Settings for faults: http.max_content_length=1mb (413), thread_pool.write.queue_size=1 (429 for
# items).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lib=$1 work=$2 port=$3
shift 3
mkdir -p "$work"
exec "${JAVA:-java}" -Xms256m "-Xmx${HEAP:-1g}" "-XX:TieredStopAtLevel=${TIER:-1}" -XX:+UseSerialGC -Djava.awt.headless=true "-Djava.io.tmpdir=$work" \
    -cp "$lib/*" "$here/SearchNode.java" "$work" "$port" "$@"
