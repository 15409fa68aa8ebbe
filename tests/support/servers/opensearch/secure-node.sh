#!/bin/sh
# secure-node.sh DIST WORK PORT CERTS: OpenSearch with the security plugin and HTTPS on
# 127.0.0.1:PORT, in the foreground, until a signal comes or its parent ends.
#
# DIST   the folder that `fetch opensearch2-secure` prints; nothing is written there
# WORK   a copy of it (links), data, logs; reachable for user nobody, who runs it if we are root
# CERTS  made by tls/make-certs.sh
# JDK    home of a JDK (default: that of java).  HEAP default 1g.  TIER=4 for the full compiler.
#        CLIENT_AUTH=REQUIRE for mutual TLS.
# Users: admin/admin; writer/writer-secret, who may create and index documents below scriptorium-*
# and nothing else; a client certificate with CN scriptorium is the same writer.
set -eu
umask 022
dist=$(cd "$1" && pwd) work=$2 port=$3 certs=$4
conf=$work/conf
mkdir -p "$conf/opensearch-security" "$conf/jvm.options.d" "$work/data" "$work/logs" "$work/tmp"
work=$(cd "$work" && pwd)
conf=$work/conf
cp -rl "$dist" "$work/home" 2>/dev/null || { rm -rf "${work:?}/home"; cp -r "$dist" "$work/home"; }
# The distribution has no analysis module, which our templates need; the plain server's jars, which
# are fetched with it, have.
mkdir -p "$work/home/plugins/analysis-common"
cp "$(dirname "$(dirname "$dist")")"/lib/analysis-common-[0-9]*.jar "$work/home/plugins/analysis-common/"
{
    version=${dist##*/opensearch-}
    echo 'name=analysis-common'
    echo 'description=analyzers'
    echo "version=$version"
    echo "opensearch.version=$version"
    echo 'java.version=11'
    echo 'classname=org.opensearch.analysis.common.CommonAnalysisPlugin'
} >"$work/home/plugins/analysis-common/plugin-descriptor.properties"
cp "$dist/config/jvm.options" "$dist/config/log4j2.properties" "$conf/"
cp "$dist"/plugins/opensearch-security/config/*.yml "$conf/opensearch-security/"
cp "$certs/server.pem" "$certs/server.key" "$certs/ca.pem" "$conf/"
cat >"$conf/opensearch.yml" <<Y
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
plugins.security.ssl.transport.pemcert_filepath: server.pem
plugins.security.ssl.transport.pemkey_filepath: server.key
plugins.security.ssl.transport.pemtrustedcas_filepath: ca.pem
plugins.security.ssl.transport.enforce_hostname_verification: false
plugins.security.ssl.http.enabled: true
plugins.security.ssl.http.pemcert_filepath: server.pem
plugins.security.ssl.http.pemkey_filepath: server.key
plugins.security.ssl.http.pemtrustedcas_filepath: ca.pem
plugins.security.ssl.http.clientauth_mode: ${CLIENT_AUTH:-OPTIONAL}
plugins.security.nodes_dn: ["CN=localhost"]
plugins.security.allow_default_init_securityindex: true
plugins.security.audit.type: noop
Y
[ -z "${EXTRA:-}" ] || printf '%s\n' "$EXTRA" >>"$conf/opensearch.yml"
cat >"$conf/opensearch-security/internal_users.yml" <<'Y'
_meta: {type: internalusers, config_version: 2}
admin: {hash: "$2a$12$VcCDgh2NDk07JGN0rjGbM.Ad41qVR/YFJcgHp0UGns5JDymv..TOG", backend_roles: [admin]}
writer: {hash: "$2y$12$Zt0P2Tqe44pqNb.sOTvqUeerwBEtMvH7OXQjFDgeqgWH6tZezftK6"}
Y
cat >"$conf/opensearch-security/roles.yml" <<'Y'
_meta: {type: roles, config_version: 2}
scriptorium_writer:
  cluster_permissions: ["indices:data/write/bulk", "cluster:monitor/main"]
  index_permissions:
    - index_patterns: ["scriptorium-*"]
      allowed_actions: ["indices:data/write/index", "indices:data/write/update", "indices:data/write/bulk[s]", "indices:admin/create", "indices:admin/mapping/put"]
Y
cat >"$conf/opensearch-security/roles_mapping.yml" <<'Y'
_meta: {type: rolesmapping, config_version: 2}
all_access: {backend_roles: [admin]}
scriptorium_writer: {users: [writer, scriptorium]}
Y
cat >"$conf/opensearch-security/config.yml" <<'Y'
_meta: {type: config, config_version: 2}
config:
  dynamic:
    http: {anonymous_auth_enabled: false}
    authc:
      cert: {http_enabled: true, order: 1, http_authenticator: {type: clientcert, challenge: false, config: {username_attribute: cn}}, authentication_backend: {type: noop}}
      basic: {http_enabled: true, order: 2, http_authenticator: {type: basic, challenge: true}, authentication_backend: {type: intern}}
Y
printf -- '-Xms256m\n-Xmx%s\n-XX:TieredStopAtLevel=%s\n' "${HEAP:-1g}" "${TIER:-1}" >"$conf/jvm.options.d/heap.options"
OPENSEARCH_PATH_CONF=$conf OPENSEARCH_TMPDIR=$work/tmp HOME=$work
OPENSEARCH_JAVA_HOME=${JDK:-$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")}
export OPENSEARCH_PATH_CONF OPENSEARCH_TMPDIR HOME OPENSEARCH_JAVA_HOME
cd "$work"
if [ "$(id -u)" = 0 ]; then
    chown -R nobody "$conf" "$work/data" "$work/logs" "$work/tmp" "$work/home/logs"
    exec setpriv --pdeathsig KILL --reuid=nobody --regid=nogroup --clear-groups bash "$work/home/bin/opensearch"
fi
exec setpriv --pdeathsig KILL bash "$work/home/bin/opensearch"
