#!/bin/sh
# make-plugin.sh HOME (elasticsearch-X.Y.Z): compiles TestAnalysis.java against that distribution
# and installs it there as plugin test-analysis. JDK = home of a JDK: 17 for 8.x, 21 or later for
# 9.x.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
es=$(cd "$1" && pwd)
bin=${JDK:+$JDK/bin/}
version=${es##*/elasticsearch-}
out=$es/plugins/test-analysis
rm -rf "$out"
mkdir -p "$out/classes"
case $version in 7.* | 8.*) release=17 ;; *) release=21 ;; esac
"${bin}javac" --release "$release" -nowarn -cp "$es/lib/*" -d "$out/classes" "$here/TestAnalysis.java"
"${bin}jar" -cf "$out/test-analysis.jar" -C "$out/classes" .
rm -r "$out/classes"
{
    echo 'name=test-analysis'
    echo 'description=pattern, pattern_capture, truncate, remove_duplicates'
    echo 'version=1'
    echo "elasticsearch.version=$version"
    echo "java.version=$release"
    echo 'classname=TestAnalysis'
} >"$out/plugin-descriptor.properties"
