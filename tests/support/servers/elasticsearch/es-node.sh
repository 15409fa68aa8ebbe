#!/bin/sh
# es-node.sh DIST WORK PORT [CERTS]: Elasticsearch on 127.0.0.1:PORT in the foreground, until a
# signal comes or its parent ends. With CERTS (made by tls/make-certs.sh): HTTPS and security,
# superuser admin, password changeme.
#
# DIST  the folder that `fetch elasticsearch8` or `fetch elasticsearch9` prints; nothing is written
#       there
# WORK  a copy of it (links) with the analysis plugin that our templates and API keys need, data,
#       logs; reachable for user nobody, who runs it if we are root, because Elasticsearch refuses
#       root
# JDK   home of a JDK (default: that of java); 9.x needs 21 or later.  HEAP default 1g.  TIER=4 for
#       the full compiler (default 1: half the time to start).
# CLIENT_AUTH=required for mutual TLS.  EXTRA="http.max_content_length: 1mb" appends lines to
#                                       elasticsearch.yml.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
dist=$(cd "$1" && pwd) work=$2 port=$3 certs=${4:-}
ES_JAVA_HOME=${JDK:-$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")}
mkdir -p "$work/conf/jvm.options.d" "$work/data" "$work/logs" "$work/tmp"
work=$(cd "$work" && pwd)
conf=$work/conf home=$work/home/$(basename "$dist")
if [ ! -d "$home" ]; then
    mkdir -p "$work/home"
    cp -rl "$dist" "$home" 2>/dev/null || { rm -rf "$home"; cp -r "$dist" "$home"; }
    JDK=$ES_JAVA_HOME "$here/plugin/make-plugin.sh" "$home"
fi
cp "$dist"/config/*.properties "$dist/config/jvm.options" "$conf/"
cat >"$conf/elasticsearch.yml" <<Y
cluster.name: scriptorium-test
node.name: n1
path.data: $work/data
path.logs: $work/logs
http.host: 127.0.0.1
http.port: $port
transport.host: 127.0.0.1
transport.port: 0
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
Y
if [ -n "$certs" ]; then
    cp "$certs/server.pem" "$certs/server.key" "$certs/ca.pem" "$conf/"
    cat >>"$conf/elasticsearch.yml" <<Y
xpack.security.enabled: true
xpack.security.authc.api_key.enabled: true
xpack.security.http.ssl.enabled: true
xpack.security.http.ssl.certificate: server.pem
xpack.security.http.ssl.key: server.key
xpack.security.http.ssl.certificate_authorities: [ca.pem]
xpack.security.http.ssl.client_authentication: ${CLIENT_AUTH:-optional}
Y
    # Users in files: a keystore would cost two more Java starts.
    cat >"$conf/users" <<'Y'
admin:$2b$04$aym5o8/yV07yX/QJ9.97AOjdyK3oyIPDZslJEQ4SdMuySs5xR7QIG
Y
    echo 'superuser:admin' >"$conf/users_roles"
else
    echo 'xpack.security.enabled: false' >>"$conf/elasticsearch.yml"
fi
[ -z "${EXTRA:-}" ] || printf '%s\n' "$EXTRA" >>"$conf/elasticsearch.yml"
printf -- '-Xms256m\n-Xmx%s\n-XX:TieredStopAtLevel=%s\n' "${HEAP:-1g}" "${TIER:-1}" >"$conf/jvm.options.d/heap.options"
ES_PATH_CONF=$conf ES_TMPDIR=$work/tmp HOME=$work CLI_JAVA_OPTS='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'
export ES_PATH_CONF ES_TMPDIR HOME CLI_JAVA_OPTS ES_JAVA_HOME
cd "$work"
as='setpriv --pdeathsig TERM'
if [ "$(id -u)" = 0 ]; then
    chown -R nobody "$conf" "$work/data" "$work/logs" "$work/tmp" "$home/logs"
    as="$as --reuid=nobody --regid=nogroup --clear-groups"
fi
# shellcheck disable=SC2086
exec $as bash "$home/bin/elasticsearch"
